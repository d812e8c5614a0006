#include "backends/ucx/ucx_sockets.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/ucx/tcp_connections.h"
#include "backends/ucx/ucx_transport.h"
#include "tests/backends/backend_world.h"
#include "tests/backends/ucx/tcp_pair.h"

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

// Connects them.
void AddOnBothNodes(BackendWorld& world) {
  std::vector<std::vector<float>> buffers(2, std::vector<float>(100'000, 1.0F));
  for (int node = 0; node < 2; ++node) {
    auto& buffer = buffers[static_cast<std::size_t>(node)];
    REQUIRE(world.at(node).TryPost(
        AllReduce({1, 0}, DataType::kFloat32, ReduceOp::kSum, buffer.data(), buffer.size())));
  }
  REQUIRE(world.RunUntilCompleted(1));
  CHECK(buffers[0][0] == 2.0F);
}

// For how many of the process's connections there is a limit to what waits unsent.
int LimitedConnections() {
  int count = 0;
  for (const int fd : TcpConnections()) {
    std::uint32_t bytes = 0;
    socklen_t length = sizeof(bytes);
    REQUIRE(::getsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, &length) == 0);
    if (bytes > 0 && bytes < (1 << 20)) ++count;
  }
  return count;
}

TEST_CASE("congestion control: as the system has it") {
  const auto choice = ChooseCongestionControl("system");
  REQUIRE(choice.ok());
  const TcpPair pair;
  const std::string before = ControlOf(pair.one.get());
  CHECK(SetCongestionControl(*choice) == 0);
  CHECK(ControlOf(pair.one.get()) == before);
}

TEST_CASE("congestion control: one that is named gets to all connections") {
  // Which every kernel has, and allows to everybody.
  const auto choice = ChooseCongestionControl("reno");
  REQUIRE(choice.ok());
  const TcpPair pair;
  CHECK(SetCongestionControl(*choice) >= 2);
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
  SetCongestionControl(*choice);
  CHECK(ControlOf(pair.one.get()) == "reno");
  if (has_bbr) CHECK(ControlOf(pair.other.get()) == choice->name);
}

TEST_CASE("congestion control: the connections to other nodes have it") {
  BackendWorld world(BackendKind::kUcx, 2, {}, {.congestion_control = "reno"});
  AddOnBothNodes(world);
  // Setting what all connections have already changes nothing, and counts them.
  const int connections = SetCongestionControl({"reno", true});
  CHECK(connections >= 2);
  CHECK(SetCongestionControl({"reno", false}) == connections);
}

TEST_CASE("unsent bytes: limited in the connections to other nodes, from the start") {
  REQUIRE(LimitedConnections() == 0);
  BackendWorld world(BackendKind::kUcx, 2);
  AddOnBothNodes(world);
  CHECK(LimitedConnections() >= 2);
}

}  // namespace
}  // namespace ringd
