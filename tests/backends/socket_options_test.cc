#include "backends/socket_options.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdint>
#include <fstream>
#include <string>

#include "tests/backends/tcp_pair.h"

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

int OptionOf(int fd, int level, int option) {
  int value = 0;
  socklen_t length = sizeof(value);
  REQUIRE(::getsockopt(fd, level, option, &value, &length) == 0);
  return value;
}

int ReceiveBufferOf(int fd) { return OptionOf(fd, SOL_SOCKET, SO_RCVBUF); }

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
  REQUIRE(SetControl(pair.one.get(), "reno"));
  SetUpConnection(pair.one.get(), *choice);
  CHECK(ControlOf(pair.one.get()) == "reno");
}

TEST_CASE("congestion control: a connection gets one that is named") {
  // Which every kernel has, and allows to everybody.
  const auto choice = ChooseCongestionControl("reno");
  REQUIRE(choice.ok());
  const TcpPair pair;
  REQUIRE(ControlOf(pair.one.get()) != "reno");
  SetUpConnection(pair.one.get(), *choice);
  CHECK(ControlOf(pair.one.get()) == "reno");
}

TEST_CASE("congestion control: a name that the kernel does not know is refused") {
  const auto choice = ChooseCongestionControl("nosuch");
  REQUIRE(absl::IsInvalidArgument(choice.status()));
  CHECK_THAT(std::string(choice.status().message()), Contains("'nosuch'") && Contains("reno"));
}

TEST_CASE("congestion control: by itself it only replaces BBR") {
  const auto choice = ChooseCongestionControl("auto");
  REQUIRE(choice.ok());
  REQUIRE((choice->name == "cubic" || choice->name == "reno"));
  const TcpPair pair;
  REQUIRE(SetControl(pair.one.get(), "reno"));
  const bool has_bbr = SetControl(pair.other.get(), "bbr");
  if (!has_bbr) WARN("this kernel has no BBR to be replaced");
  SetUpConnection(pair.one.get(), *choice);
  SetUpConnection(pair.other.get(), *choice);
  CHECK(ControlOf(pair.one.get()) == "reno");
  if (has_bbr) CHECK(ControlOf(pair.other.get()) == choice->name);
}

TEST_CASE("a connection between nodes sends at once, and ends when the other host is gone") {
  const TcpPair pair;
  const int fd = pair.one.get();
  SetUpConnection(fd, {});
  CHECK(OptionOf(fd, IPPROTO_TCP, TCP_NODELAY) != 0);
  CHECK(OptionOf(fd, SOL_SOCKET, SO_KEEPALIVE) != 0);
  CHECK(OptionOf(fd, IPPROTO_TCP, TCP_USER_TIMEOUT) == 40'000);
}

TEST_CASE("unsent bytes: limited as asked, and without limit again") {
  const TcpPair pair;
  const int fd = pair.one.get();
  LimitUnsent(fd, kUnsentBytes);
  CHECK(OptionOf(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT) == static_cast<int>(kUnsentBytes));
  LimitUnsent(fd, 0);
  CHECK(OptionOf(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT) == 0);
}

TEST_CASE("receive window: opened as far as asked, what has come is still told at once") {
  const TcpPair pair;
  const int fd = pair.one.get();
  constexpr int kWindow = 1 << 20;
  REQUIRE(LargestReceiveBuffer() >= 4 * kWindow);
  REQUIRE(ReceiveBufferOf(fd) < kWindow);
  OpenReceiveWindow(fd, kWindow);
  CHECK(ReceiveBufferOf(fd) >= kWindow);
  const char byte = 'x';
  REQUIRE(::send(pair.other.get(), &byte, 1, 0) == 1);
  pollfd readable{.fd = fd, .events = POLLIN, .revents = 0};
  CHECK(::poll(&readable, 1, 1000) == 1);
}

TEST_CASE("receive window: no further than the host allows, and never smaller") {
  const TcpPair pair;
  const int fd = pair.one.get();
  OpenReceiveWindow(fd, 1u << 30);
  const int opened = ReceiveBufferOf(fd);
  CHECK(opened >= LargestReceiveBuffer() / 2);
  CHECK(opened <= LargestReceiveBuffer() * 2);
  OpenReceiveWindow(fd, 4096);
  CHECK(ReceiveBufferOf(fd) == opened);
}

}  // namespace
}  // namespace ringd
