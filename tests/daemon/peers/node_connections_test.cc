#include "daemon/peers/node_connections.h"

#include <sys/resource.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "proto/base/unix_socket.h"

namespace ringd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uid_t kAlice = 1000;
constexpr seconds kCall{5};
constexpr seconds kClose{3};

// Whether the connection has been shut down at the other side.
bool IsHungUpOn(const UniqueFd& end) {
  std::byte byte{};
  return ::recv(end.get(), &byte, 1, MSG_DONTWAIT) == 0;
}

struct World {
  World() : connections({kCall, kClose}, [this](uid_t user) { released.push_back(user); }) {}

  // The other side's end; `served` is gRPC's from now on.
  UniqueFd Come(const std::string& token) {
    auto ends = UnixSocketPair();
    REQUIRE(ends.ok());
    served =
        connections.Add({token, ExpectationId(7), kAlice, "node-b", std::move(ends->first)}, began);
    return std::move(ends->second);
  }

  const Clock::time_point began = Clock::now();
  std::vector<uid_t> released;
  NodeConnections connections;
  UniqueFd served;
};

}  // namespace

TEST_CASE("NodeConnections: a call that has begun keeps its connection, and knows whose it is") {
  World world;
  const UniqueFd end = world.Come("token");
  CHECK_FALSE(world.connections.Begin("another").has_value());
  const auto begun = world.connections.Begin("token");
  REQUIRE(begun.has_value());
  CHECK(begun->job == ExpectationId(7));
  CHECK(begun->from == "node-b");
  CHECK_FALSE(world.connections.Begin("token").has_value());  // it is used up
  CHECK_FALSE(world.connections.Sweep(world.began + std::chrono::hours(1000)));
  CHECK_FALSE(IsHungUpOn(end));
  CHECK(world.released.empty());
}

TEST_CASE(
    "NodeConnections: a connection without a call is shut down, and counts until it is closed") {
  World world;
  const UniqueFd end = world.Come("token");
  CHECK(world.connections.Sweep(world.began + kCall - milliseconds(1)));
  CHECK_FALSE(IsHungUpOn(end));
  CHECK(world.connections.Sweep(world.began + kCall));
  CHECK(IsHungUpOn(end));
  CHECK_FALSE(world.connections.Begin("token").has_value());
  // gRPC still has it.
  CHECK(world.connections.Sweep(world.began + std::chrono::hours(1)));
  CHECK(world.released.empty());
  world.served.Reset();
  CHECK_FALSE(world.connections.Sweep(world.began + std::chrono::hours(1)));
  CHECK(world.released == std::vector{kAlice});
}

TEST_CASE("NodeConnections: a connection whose call has ended is shut down a little later") {
  World world;
  const UniqueFd end = world.Come("token");
  const ConnectionId connection = world.connections.Begin("token").value().connection;
  const Clock::time_point ended = world.began + std::chrono::hours(1);
  world.connections.End(connection, ended);
  CHECK(world.connections.Sweep(ended + kClose - milliseconds(1)));
  CHECK_FALSE(IsHungUpOn(end));
  CHECK(world.connections.Sweep(ended + kClose));
  CHECK(IsHungUpOn(end));
  CHECK(world.released.empty());
  world.served.Reset();
  world.connections.Sweep(ended + kClose);
  CHECK(world.released == std::vector{kAlice});
}

TEST_CASE(
    "NodeConnections: what gRPC has closed is released, also if its number is another's now") {
  World world;
  const UniqueFd end = world.Come("token");
  auto others = UnixSocketPair();
  REQUIRE(others.ok());
  REQUIRE(::dup2(others->first.get(), world.served.get()) == world.served.get());
  CHECK_FALSE(world.connections.Sweep(world.began + std::chrono::hours(1)));
  CHECK(world.released == std::vector{kAlice});
  CHECK(IsHungUpOn(end));
  CHECK_FALSE(IsHungUpOn(others->second));
}

TEST_CASE("NodeConnections: a connection for which there is no second descriptor is not let in") {
  World world;
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  auto ends = UnixSocketPair();
  REQUIRE(ends.ok());
  const rlimit none{0, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &none);
  world.served = world.connections.Add(
      {"token", ExpectationId(7), kAlice, "node-b", std::move(ends->first)}, world.began);
  ::setrlimit(RLIMIT_NOFILE, &before);
  CHECK_FALSE(world.served.valid());
  CHECK(IsHungUpOn(ends->second));
  CHECK(world.released == std::vector{kAlice});
  CHECK_FALSE(world.connections.Begin("token").has_value());
}

}  // namespace ringd
