// When the other side of a control stream counts as lost. The other end is the test's own: what it
// does not read, its host has not acknowledged.
#include "daemon/peers/peer_stream.h"

#include <sys/socket.h>

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "proto/base/unix_socket.h"
#include "proto/peers/peer_frame.h"

namespace ringd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct World {
  World() {
    auto pair = UnixSocketPair();
    REQUIRE(pair.ok());
    other = std::move(pair->second);
    stream.Connect(std::move(pair->first), begin);
  }

  // The bytes that have come.
  std::size_t ReadAll() const {
    std::array<std::byte, 4096> bytes;
    std::size_t all = 0;
    for (;;) {
      const ssize_t got = ::recv(other.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (got <= 0) return all;
      all += static_cast<std::size_t>(got);
    }
  }
  PeerStream::Look LookAt(milliseconds time) { return stream.LookAfter(begin + time); }

  const Clock::time_point begin = Clock::now();
  const PeerStreamLimits limits;
  UniqueFd other;
  PeerStream stream{limits, std::make_shared<PeerBudget>(std::size_t{1} << 20)};
};

}  // namespace

TEST_CASE("PeerStream: a host that acknowledges nothing is lost after interval and timeout") {
  World world;
  CHECK_FALSE(world.LookAt(milliseconds(999)).is_over);
  CHECK(world.ReadAll() == 0);
  const PeerStream::Look pinged = world.LookAt(milliseconds(1000));
  CHECK_FALSE(pinged.is_over);
  CHECK(pinged.next == world.begin + milliseconds(3500));
  CHECK_FALSE(world.LookAt(milliseconds(3499)).is_over);
  const PeerStream::Look look = world.LookAt(milliseconds(3500));
  CHECK(look.is_over);
  CHECK(std::string(look.why) == "its host does not answer");
}

TEST_CASE("PeerStream: a process that says nothing has its patience while its host acknowledges") {
  World world;
  milliseconds time{1000};
  for (; time < world.limits.process_patience; time += milliseconds(2500)) {
    INFO(time.count());
    REQUIRE_FALSE(world.LookAt(time).is_over);
    REQUIRE(world.ReadAll() > 0);  // a ping each time
  }
  SECTION("and is lost then") {
    const PeerStream::Look look = world.LookAt(time);
    CHECK(look.is_over);
    CHECK(std::string(look.why) == "its host answers, the process does not");
  }
  SECTION("it has time again if it says a word") {
    world.stream.Heard(world.begin + time);
    CHECK_FALSE(world.LookAt(time).is_over);
    CHECK(world.ReadAll() == 0);
    CHECK_FALSE(world.LookAt(time + seconds(5)).is_over);
  }
  SECTION("its host is lost as soon as it acknowledges nothing") {
    world.stream.Heard(world.begin + time);
    CHECK_FALSE(world.LookAt(time + milliseconds(1000)).is_over);
    world.ReadAll();
    CHECK_FALSE(world.LookAt(time + milliseconds(3500)).is_over);
    CHECK(world.LookAt(time + milliseconds(6000)).is_over);
  }
}

TEST_CASE("PeerStream: a ping behind much is waited for while the other host takes of it") {
  World world;
  const std::vector<std::byte> much(400'000);
  REQUIRE(world.stream.Send(EncodePeerFrame(PeerFrameKind::kMessage, much)));
  CHECK_FALSE(world.LookAt(milliseconds(1000)).is_over);
  std::vector<std::byte> some(200'000);
  REQUIRE(::recv(world.other.get(), some.data(), some.size(), MSG_DONTWAIT) > 0);
  CHECK_FALSE(world.LookAt(milliseconds(3500)).is_over);
  CHECK(world.LookAt(milliseconds(6000)).is_over);
}

}  // namespace ringd
