// When the other side of a control stream counts as lost. The other end is the test's own: what it
// does not read, its host has not acknowledged.
#include "daemon/peers/peer_stream.h"

#include <netinet/in.h>
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
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  REQUIRE(::bind(listener.get(), generic, length) == 0);
  REQUIRE(::listen(listener.get(), 1) == 0);
  REQUIRE(::getsockname(listener.get(), generic, &length) == 0);
  Ends ends;
  ends.own.Reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(ends.own.get(), generic, length) == 0);
  ends.other.Reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  REQUIRE(ends.other.valid());
  return ends;
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
  CHECK_FALSE(world.LookAt(milliseconds(999)).is_over);
  CHECK(world.ReadAll() == 0);
  const PeerStream::Look pinged = world.LookAt(milliseconds(1000));
  CHECK_FALSE(pinged.is_over);
  CHECK(pinged.next == world.begin + milliseconds(3500));
  CHECK_FALSE(world.LookAt(milliseconds(3499)).is_over);
  const PeerStream::Look look = world.LookAt(milliseconds(3500));
  CHECK(look.is_over);
  CHECK(look.why == absl::UnavailableError("its host does not answer"));
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
    CHECK(look.why ==
          absl::DeadlineExceededError("it has not answered for 36 s, though its host does"));
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

TEST_CASE("PeerStream: a process that reads nothing has its patience, whatever waits for it") {
  World world(TcpEnds());
  const std::vector<std::byte> much(GENERATE(std::size_t{1}, std::size_t{12} << 20));
  CAPTURE(much.size());
  milliseconds time{1000};
  for (; time < world.limits.process_patience; time += milliseconds(2500)) {
    INFO(time.count());
    REQUIRE_FALSE(world.LookAt(time).is_over);
    if (time == milliseconds(3500)) {
      REQUIRE(world.stream.Send(EncodePeerFrame(PeerFrameKind::kMessage, much)));
      Settle();
    }
  }
  Settle();
  const PeerStream::Look look = world.LookAt(time);
  CHECK(look.is_over);
  CHECK(look.why ==
        absl::DeadlineExceededError("it has not answered for 36 s, though its host does"));
}

TEST_CASE(
    "PeerStream: that it has acknowledged the ping counts, though something new is on its way") {
  World world;
  // Of a Unix socket more counts as outstanding than its bytes.
  const std::vector<std::byte> before(100'000);
  REQUIRE(world.stream.Send(EncodePeerFrame(PeerFrameKind::kMessage, before)));
  REQUIRE(world.ReadAll() > before.size());
  CHECK_FALSE(world.LookAt(milliseconds(1000)).is_over);
  REQUIRE(world.ReadAll() > 0);
  REQUIRE(world.stream.Send(EncodePeerFrame(PeerFrameKind::kMessage, {})));
  CHECK_FALSE(world.LookAt(milliseconds(3500)).is_over);
  CHECK(world.LookAt(milliseconds(6000)).is_over);
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
