#include "backends/ucx/ucx_sockets.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "backends/ucx/tcp_connections.h"
#include "backends/ucx/ucx_transport.h"
#include "proto/base/clock.h"
#include "tests/backends/backend_world.h"
#include "tests/backends/tcp_pair.h"
#include "tests/backends/two_nodes.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;

std::string ControlOf(int fd) {
  std::array<char, 16> name{};
  socklen_t length = name.size();
  if (::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &length) != 0) return {};
  return name.data();
}

bool SetControl(int fd, const std::string& name) {
  return ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                      static_cast<socklen_t>(name.size())) == 0;
}

// How many of the process's connections `has` is true for.
template <typename Has>
int ConnectionsThat(Has has) {
  const std::vector<int> all = TcpConnections();
  return static_cast<int>(std::count_if(all.begin(), all.end(), has));
}

std::uint32_t UnsentLimitOf(int fd) {
  std::uint32_t bytes = 0;
  socklen_t length = sizeof(bytes);
  REQUIRE(::getsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, &length) == 0);
  return bytes;
}

int ReceiveBufferOf(int fd) {
  int bytes = 0;
  socklen_t length = sizeof(bytes);
  REQUIRE(::getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, &length) == 0);
  return bytes;
}

// The largest receive buffer that the kernel gives by itself.
int LargestReceiveBuffer() {
  std::ifstream file("/proc/sys/net/ipv4/tcp_rmem");
  int least = 0;
  int usual = 0;
  int most = 0;
  REQUIRE(file >> least >> usual >> most);
  return most;
}

TEST_CASE("congestion control: as the system has it") {
  const auto choice = ChooseCongestionControl("system");
  REQUIRE(choice.ok());
  const TcpPair pair;
  const std::string before = ControlOf(pair.one.get());
  TuneConnections({.congestion_control = *choice});
  CHECK(ControlOf(pair.one.get()) == before);
}

TEST_CASE("congestion control: one that is named gets to all connections") {
  // Which every kernel has, and allows to everybody.
  const auto choice = ChooseCongestionControl("reno");
  REQUIRE(choice.ok());
  const TcpPair pair;
  TuneConnections({.congestion_control = *choice});
  CHECK(ControlOf(pair.one.get()) == "reno");
  CHECK(ControlOf(pair.other.get()) == "reno");
}

TEST_CASE("congestion control: a name that the kernel does not know is refused") {
  const auto choice = ChooseCongestionControl("nosuch");
  REQUIRE(absl::IsInvalidArgument(choice.status()));
  CHECK_THAT(std::string(choice.status().message()), Contains("'nosuch'") && Contains("reno"));
  const auto transport = CreateUcxTransport({.congestion_control = "nosuch"});
  CHECK(absl::IsInvalidArgument(transport.status()));
}

TEST_CASE("congestion control: by itself it only replaces BBR") {
  const auto choice = ChooseCongestionControl("auto");
  REQUIRE(choice.ok());
  REQUIRE((choice->name == "cubic" || choice->name == "reno"));
  const TcpPair pair;
  REQUIRE(SetControl(pair.one.get(), "reno"));
  const bool has_bbr = SetControl(pair.other.get(), "bbr");
  if (!has_bbr) WARN("this kernel has no BBR to be replaced");
  TuneConnections({.congestion_control = *choice});
  CHECK(ControlOf(pair.one.get()) == "reno");
  if (has_bbr) CHECK(ControlOf(pair.other.get()) == choice->name);
}

TEST_CASE("congestion control: the connections to other nodes have it") {
  BackendWorld world(BackendKind::kUcx, 2, {}, {.congestion_control = "reno"});
  // One that only the neighbour knows of is found within a second of traffic.
  int with_reno = 0;
  int connections = 0;
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(20);
  for (std::uint32_t round = 0; round == 0 || (with_reno < connections && Clock::now() < deadline);
       ++round) {
    AddOnBothNodes(world, round);
    with_reno = ConnectionsThat([](int fd) { return ControlOf(fd) == "reno"; });
    connections = ConnectionsThat([](int) { return true; });
  }
  CHECK(with_reno >= 2);
  CHECK(with_reno == connections);
}

TEST_CASE("unsent bytes: limited in the connections to other nodes, from the start") {
  const auto is_limited = [](int fd) {
    return UnsentLimitOf(fd) > 0 && UnsentLimitOf(fd) < 1 << 20;
  };
  REQUIRE(ConnectionsThat(is_limited) == 0);
  BackendWorld world(BackendKind::kUcx, 2);
  AddOnBothNodes(world);
  CHECK(ConnectionsThat(is_limited) >= 2);
}

TEST_CASE("receive window: opened as far as asked, what has come is still told at once") {
  const TcpPair pair;
  const int fd = pair.one.get();
  constexpr int kWindow = 1 << 20;
  REQUIRE(LargestReceiveBuffer() >= 4 * kWindow);
  REQUIRE(ReceiveBufferOf(fd) < kWindow);
  TuneConnections({.receive_window_bytes = kWindow});
  CHECK(ReceiveBufferOf(fd) >= kWindow);
  const char byte = 'x';
  REQUIRE(::send(pair.other.get(), &byte, 1, 0) == 1);
  pollfd readable{.fd = fd, .events = POLLIN, .revents = 0};
  CHECK(::poll(&readable, 1, 1000) == 1);
}

TEST_CASE("receive window: left alone where a reader may block") {
  const TcpPair pair;
  const int fd = pair.one.get();
  const timeval timeout{.tv_sec = 0, .tv_usec = 20'000};
  REQUIRE(::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) == 0);
  const int before = ReceiveBufferOf(fd);
  TuneConnections({.receive_window_bytes = 1 << 20});
  CHECK(ReceiveBufferOf(fd) == before);
  CHECK(ReceiveBufferOf(pair.other.get()) > before);
}

TEST_CASE("receive window: no further than the host allows, and never smaller") {
  const TcpPair pair;
  const int fd = pair.one.get();
  TuneConnections({.receive_window_bytes = 1u << 30});
  const int opened = ReceiveBufferOf(fd);
  CHECK(opened >= LargestReceiveBuffer() / 2);
  CHECK(opened <= LargestReceiveBuffer() * 2);
  TuneConnections({.receive_window_bytes = 4096});
  CHECK(ReceiveBufferOf(fd) == opened);
}

TEST_CASE("receive window: open in the connections to other nodes, from the start") {
  const int open = LargestReceiveBuffer() / 2;
  const auto is_open = [open](int fd) { return ReceiveBufferOf(fd) >= open; };
  REQUIRE(ConnectionsThat(is_open) == 0);
  BackendWorld world(BackendKind::kUcx, 2);
  AddOnBothNodes(world);
  CHECK(ConnectionsThat(is_open) >= 2);
}

TEST_CASE("receive window: open also in connections that come later, soon after there is traffic") {
  const int open = LargestReceiveBuffer() / 2;
  BackendWorld world(BackendKind::kUcx, 2);
  std::uint32_t operations = 0;
  AddOnBothNodes(world, operations++);
  // As if a neighbour had opened one more.
  const TcpPair later;
  CHECK(ReceiveBufferOf(later.one.get()) < open);
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(30);
  while (ReceiveBufferOf(later.one.get()) < open && Clock::now() < deadline) {
    AddOnBothNodes(world, operations++);
  }
  CHECK(ReceiveBufferOf(later.one.get()) >= open);
}

}  // namespace
}  // namespace ringd
