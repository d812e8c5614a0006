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
#include <thread>
#include <utility>
#include <vector>

#include "proto/base/unix_socket.h"
#include "proto/peers/peer_frame.h"
#include "tests/backends/tcp_pair.h"

namespace ringd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct Ends {
  UniqueFd own;
  UniqueFd other;
};

Ends UnixEnds() {
  auto pair = UnixSocketPair();
  REQUIRE(pair.ok());
  return {std::move(pair->first), std::move(pair->second)};
}

// The kernel acknowledges what nobody reads, as far as its buffer goes.
Ends TcpEnds() {
  TcpPair pair;
  return {std::move(pair.one), std::move(pair.other)};
}

struct World {
  explicit World(Ends ends = UnixEnds()) : other(std::move(ends.other)) {
    stream.Connect(std::move(ends.own), begin);
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
  PeerStream stream{limits, std::make_shared<PeerBudget>(std::size_t{64} << 20)};
};

// Until the kernel has taken, or acknowledged, what it does.
void Settle() { std::this_thread::sleep_for(milliseconds(100)); }

}  // namespace

TEST_CASE("PeerStream: a host that acknowledges nothing is lost after interval and timeout") {
  World world;
  CHECK(world.LookAt(milliseconds(999)).over.ok());
  CHECK(world.ReadAll() == 0);
  const PeerStream::Look pinged = world.LookAt(milliseconds(1000));
  CHECK(pinged.over.ok());
  CHECK(pinged.next == world.begin + milliseconds(3500));
  CHECK(world.LookAt(milliseconds(3499)).over.ok());
  const PeerStream::Look look = world.LookAt(milliseconds(3500));
  CHECK(look.over == absl::UnavailableError("its host does not answer"));
}

TEST_CASE("PeerStream: nothing follows a message that has left in part, not even why it ends") {
  Ends ends = UnixEnds();
  const auto budget = std::make_shared<PeerBudget>(std::size_t{4} << 20);
  PeerStream stream(PeerStreamLimits{}, budget);
  stream.Connect(std::move(ends.own), Clock::now());
  // More than the kernel takes, and then nobody has any room.
  REQUIRE(stream.Send(EncodePeerFrame(
      PeerFrameKind::kMessage, std::vector<std::byte>(std::size_t{3} << 20, std::byte{'m'}))));
  REQUIRE(budget->Take((std::size_t{4} << 20) - budget->used()));
  REQUIRE(stream.Close(absl::AbortedError("why")));
  stream.Disconnect();
  std::string all;
  std::array<char, 4096> bytes;
  for (ssize_t got; (got = ::recv(ends.other.get(), bytes.data(), bytes.size(), 0)) > 0;) {
    all.append(bytes.data(), static_cast<std::size_t>(got));
  }
  REQUIRE(all.size() > kPeerFrameHeaderBytes);
  CHECK(all.find_first_not_of('m', kPeerFrameHeaderBytes) == std::string::npos);
}

TEST_CASE("PeerStream: a process that says nothing has its patience while its host acknowledges") {
  World world;
  milliseconds time{1000};
  for (; time < world.limits.process_patience; time += milliseconds(2500)) {
    INFO(time.count());
    REQUIRE(world.LookAt(time).over.ok());
    REQUIRE(world.ReadAll() > 0);  // a ping each time
  }
  SECTION("and is lost then") {
    const PeerStream::Look look = world.LookAt(time);
    CHECK(look.over ==
          absl::DeadlineExceededError("it has not answered for 36 s, though its host does"));
  }
  SECTION("it has time again if it says a word") {
    world.stream.Heard(world.begin + time);
    CHECK(world.LookAt(time).over.ok());
    CHECK(world.ReadAll() == 0);
    CHECK(world.LookAt(time + seconds(5)).over.ok());
  }
  SECTION("its host is lost as soon as it acknowledges nothing") {
    world.stream.Heard(world.begin + time);
    CHECK(world.LookAt(time + milliseconds(1000)).over.ok());
    world.ReadAll();
    CHECK(world.LookAt(time + milliseconds(3500)).over.ok());
    CHECK_FALSE(world.LookAt(time + milliseconds(6000)).over.ok());
  }
}

TEST_CASE("PeerStream: a process that reads nothing has its patience, whatever waits for it") {
  World world(TcpEnds());
  const std::vector<std::byte> much(GENERATE(std::size_t{1}, std::size_t{12} << 20));
  CAPTURE(much.size());
  milliseconds time{1000};
  for (; time < world.limits.process_patience; time += milliseconds(2500)) {
    INFO(time.count());
    REQUIRE(world.LookAt(time).over.ok());
    if (time == milliseconds(3500)) {
      REQUIRE(world.stream.Send(EncodePeerFrame(PeerFrameKind::kMessage, much)));
      Settle();
    }
  }
  Settle();
  const PeerStream::Look look = world.LookAt(time);
  CHECK(look.over ==
        absl::DeadlineExceededError("it has not answered for 36 s, though its host does"));
}

TEST_CASE(
    "PeerStream: that it has acknowledged the ping counts, though something new is on its way") {
  World world;
  // Of a Unix socket more counts as outstanding than its bytes.
  const std::vector<std::byte> before(100'000);
  REQUIRE(world.stream.Send(EncodePeerFrame(PeerFrameKind::kMessage, before)));
  REQUIRE(world.ReadAll() > before.size());
  CHECK(world.LookAt(milliseconds(1000)).over.ok());
  REQUIRE(world.ReadAll() > 0);
  REQUIRE(world.stream.Send(EncodePeerFrame(PeerFrameKind::kMessage, {})));
  CHECK(world.LookAt(milliseconds(3500)).over.ok());
  CHECK_FALSE(world.LookAt(milliseconds(6000)).over.ok());
}

TEST_CASE("PeerStream: a ping behind much is waited for while the other host takes of it") {
  World world;
  const std::vector<std::byte> much(400'000);
  REQUIRE(world.stream.Send(EncodePeerFrame(PeerFrameKind::kMessage, much)));
  CHECK(world.LookAt(milliseconds(1000)).over.ok());
  std::vector<std::byte> some(200'000);
  REQUIRE(::recv(world.other.get(), some.data(), some.size(), MSG_DONTWAIT) > 0);
  CHECK(world.LookAt(milliseconds(3500)).over.ok());
  CHECK_FALSE(world.LookAt(milliseconds(6000)).over.ok());
}

}  // namespace ringd
