#include "proto/channel/channel.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "daemon/channel/channel_loop.h"
#include "proto/base/clock.h"
#include "proto/base/unix_socket.h"
#include "tests/proto/base/tcp_pair.h"

namespace ringd {
namespace {

// What one end has received, for a thread that waits for it.
class Received {
 public:
  ChannelEvents Events() {
    return {[this](ChannelFrame frame) {
              const std::lock_guard lock(mutex_);
              frames_.push_back(std::move(frame));
              changed_.notify_all();
            },
            [this](const absl::Status& why) {
              const std::lock_guard lock(mutex_);
              end_ = why;
              changed_.notify_all();
            }};
  }
  void AwaitFrames(std::size_t count) {
    std::unique_lock lock(mutex_);
    REQUIRE(
        changed_.wait_for(lock, std::chrono::seconds(60), [&] { return frames_.size() >= count; }));
  }
  absl::Status AwaitEnd() {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, std::chrono::seconds(60), [&] { return end_.has_value(); }));
    return *end_;
  }
  // Requirement: nothing comes any more.
  std::vector<ChannelFrame>& frames() { return frames_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<ChannelFrame> frames_;
  std::optional<absl::Status> end_;
};

struct Pair {
  Pair() {
    auto ends = UnixSocketPair();
    REQUIRE(ends.ok());
    near = *loop->Add(std::move(ends->first), near_received.Events(), limits);
    far_socket = std::move(ends->second);
  }
  // The other end as a channel, too.
  void OpenFar() { far = *loop->Add(std::move(far_socket), far_received.Events(), limits); }
  void SendRaw(const std::string& bytes) {
    REQUIRE(::send(far_socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(bytes.size()));
  }

  ChannelLimits limits{std::size_t{8} << 20, std::size_t{16} << 20};
  Received near_received;
  Received far_received;
  UniqueFd far_socket;
  std::unique_ptr<ChannelLoop> loop = *ChannelLoop::Start("channel-test");
  std::shared_ptr<Channel> near;
  std::shared_ptr<Channel> far;
};

std::string Header(std::uint32_t bytes, std::uint32_t fds) {
  std::string header(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
  return header.append(reinterpret_cast<const char*>(&fds), sizeof(fds));
}

TEST_CASE("Channel: frames arrive whole and in order, of any size") {
  Pair pair;
  pair.OpenFar();
  const std::vector<std::size_t> sizes = {0, 1, 100, 65'528, 65'536, 3'000'000, 0, 8 << 20, 7};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    // Within what may wait.
    if (i > 0) pair.far_received.AwaitFrames(i);
    REQUIRE(pair.near->Send(std::string(sizes[i], static_cast<char>('a' + i))));
  }
  pair.far_received.AwaitFrames(sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    CHECK(pair.far_received.frames()[i].bytes == std::string(sizes[i], static_cast<char>('a' + i)));
  }
}

TEST_CASE("Channel: descriptors come with their frame") {
  Pair pair;
  pair.OpenFar();
  constexpr int kFrames = 40;
  for (int i = 0; i < kFrames; ++i) {
    std::vector<UniqueFd> fds;
    for (int k = 0; k < i % 4; ++k) {
      fds.emplace_back(::eventfd(static_cast<unsigned>(100 * i + k), EFD_CLOEXEC | EFD_NONBLOCK));
    }
    const bool sent =
        pair.near->Send(std::string(static_cast<std::size_t>(i) * 5'000, 'x'), std::move(fds));
    REQUIRE(sent);
  }
  pair.far_received.AwaitFrames(kFrames);
  for (int i = 0; i < kFrames; ++i) {
    const ChannelFrame& frame = pair.far_received.frames()[static_cast<std::size_t>(i)];
    REQUIRE(frame.fds.size() == static_cast<std::size_t>(i % 4));
    for (int k = 0; k < i % 4; ++k) {
      std::uint64_t value = 0;
      const int fd = frame.fds[static_cast<std::size_t>(k)].get();
      REQUIRE(::read(fd, &value, sizeof(value)) == sizeof(value));
      CHECK(value == static_cast<std::uint64_t>(100 * i + k));
    }
  }
}

TEST_CASE("Channel: a peer that has gone, or closes, ends it") {
  Pair pair;
  pair.far_socket.Reset();
  CHECK(absl::IsUnavailable(pair.near_received.AwaitEnd()));
  CHECK_FALSE(pair.near->Send("nobody hears this"));
}

TEST_CASE("Channel: a frame that says it is too long, or has too many descriptors, ends it") {
  const std::string header = GENERATE(Header((8u << 20) + 1, 0), Header(1, Channel::kMostFds + 1),
                                      Header(UINT32_MAX, UINT32_MAX));
  Pair pair;
  pair.SendRaw(header);
  CHECK(absl::IsInvalidArgument(pair.near_received.AwaitEnd()));
  CHECK(pair.near_received.frames().empty());
}

TEST_CASE("Channel: what is longer than the other side may send, or has descriptors, ends it") {
  auto ends = UnixSocketPair();
  REQUIRE(ends.ok());
  Channel strict(std::move(ends->first),
                 {.frame_bytes = 1000, .incoming_frame_bytes = 10, .takes_fds = false}, nullptr);
  Channel other(std::move(ends->second), {}, nullptr);
  int taken = 0;
  const auto read = [&] { return strict.Read(4096, [&](const ChannelFrame&) { ++taken; }); };
  CHECK(strict.Send(std::string(1000, 'x')));
  REQUIRE(other.Send(std::string(10, 'x')));
  CHECK(read().ok());
  CHECK(taken == 1);
  std::vector<UniqueFd> fds;
  const bool has_fd = GENERATE(false, true);
  if (has_fd) fds.emplace_back(::eventfd(0, EFD_CLOEXEC));
  const bool sent = other.Send(std::string(has_fd ? 1 : 11, 'x'), std::move(fds));
  REQUIRE(sent);
  CHECK(absl::IsInvalidArgument(read()));
  CHECK(taken == 1);
}

TEST_CASE("Channel: a frame without the descriptors that it says ends it") {
  Pair pair;
  pair.SendRaw(Header(2, 1) + "ab");
  CHECK(absl::IsInvalidArgument(pair.near_received.AwaitEnd()));
}

TEST_CASE("Channel: a frame in pieces is whole in the end, and one in part is none") {
  Pair pair;
  const std::string bytes = Header(6, 0) + "pieces" + Header(10, 0) + "in pa";
  for (const char byte : bytes) pair.SendRaw(std::string(1, byte));
  pair.near_received.AwaitFrames(1);
  pair.far_socket.Reset();
  CHECK(absl::IsUnavailable(pair.near_received.AwaitEnd()));
  REQUIRE(pair.near_received.frames().size() == 1);
  CHECK(pair.near_received.frames()[0].bytes == "pieces");
}

TEST_CASE("Channel: who does not take what is sent is given up, and nobody waits for him") {
  Pair pair;
  int sent = 0;
  // Far more than may wait.
  while (sent < 1000 && pair.near->Send(std::string(std::size_t{1} << 20, 'x'))) ++sent;
  CHECK(sent >= 15);
  CHECK(sent <= 17);
  CHECK_FALSE(pair.near->WaitsToSend());
  CHECK(absl::IsUnavailable(pair.near_received.AwaitEnd()));
}

TEST_CASE("Channel: who does not take descriptors is given up long before there are none left") {
  auto ends = UnixSocketPair();
  REQUIRE(ends.ok());
  Channel channel(std::move(ends->first), {.queued_bytes = 4 * Channel::kFdBytes}, nullptr);
  int sent = 0;
  // A socket takes some hundreds, which are its own then.
  for (; sent < 10'000; ++sent) {
    std::vector<UniqueFd> fds;
    fds.emplace_back(::eventfd(0, EFD_CLOEXEC));
    REQUIRE(fds.front().valid());
    if (!channel.Send("", std::move(fds))) break;
  }
  CHECK(sent > 4);
  CHECK(sent < 10'000);
}

TEST_CASE("ChannelLoop: descriptors whose close waits keep no other channel waiting") {
  IsolatedExecutor isolated;
  Received bad_received;
  Received good_received;
  // Holds the loop's thread at the first frame of the good channel.
  std::promise<void> reached;
  std::promise<void> released;
  ChannelEvents good_events = good_received.Events();
  good_events.on_frame = [&, take = good_events.on_frame,
                          first = true](ChannelFrame frame) mutable {
    if (std::exchange(first, false)) {
      reached.set_value();
      released.get_future().wait_for(std::chrono::seconds(60));
    }
    take(std::move(frame));
  };
  const std::unique_ptr<ChannelLoop> loop = *ChannelLoop::Start("channel-test", &isolated);
  auto bad_ends = UnixSocketPair();
  auto good_ends = UnixSocketPair();
  REQUIRE((bad_ends.ok() && good_ends.ok()));
  // Such as are not asked for, or belong to no frame.
  ChannelLimits limits;
  limits.takes_fds = GENERATE(false, true);
  auto bad = *loop->Add(std::move(bad_ends->first), bad_received.Events(), limits);
  const auto good = *loop->Add(std::move(good_ends->first), std::move(good_events));
  const auto beat = [&socket = good_ends->second] {
    const std::string frame = Header(4, 0) + "beat";
    REQUIRE(::send(socket.get(), frame.data(), frame.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(frame.size()));
  };
  std::vector<std::array<UniqueFd, 2>> lingering;
  std::vector<int> fds;
  for (int i = 0; i < 40; ++i) {
    lingering.push_back(testing::TcpPair());
    testing::MakeLinger(lingering.back()[0].get());
    fds.push_back(lingering.back()[0].get());
  }
  const auto began = Clock::now();
  beat();
  REQUIRE(reached.get_future().wait_for(std::chrono::seconds(60)) == std::future_status::ready);
  const std::array<std::byte, 1> byte{};
  // As many at once as there may be: the first ones end the channel, or the last ones.
  for (std::size_t i = 0; i < fds.size(); i += 8) {
    REQUIRE(SendWithFds(bad_ends->second.get(), byte, std::span(fds).subspan(i, 8), began).ok());
  }
  // From now on they are the other side's alone, and on their way.
  for (auto& pair : lingering) pair[0].Reset();
  released.set_value();
  CHECK_FALSE(bad_received.AwaitEnd().ok());
  bad.reset();
  for (std::size_t i = 2; i <= 4; ++i) {
    beat();
    good_received.AwaitFrames(i);
  }
  CHECK(Clock::now() - began < std::chrono::seconds(testing::kLingerSeconds) / 2);
}

TEST_CASE("ChannelLoop: a channel that outlives the loop is closed") {
  Pair pair;
  pair.loop.reset();
  CHECK_FALSE(pair.near->Send("nobody sends this"));
  char byte = 0;
  CHECK(::recv(pair.far_socket.get(), &byte, 1, 0) == 0);
}

TEST_CASE("Channel: more descriptors than a frame may have are not sent") {
  Pair pair;
  pair.OpenFar();
  std::vector<UniqueFd> fds;
  for (std::size_t i = 0; i <= Channel::kMostFds; ++i) fds.emplace_back(::eventfd(0, EFD_CLOEXEC));
  const bool sent = pair.near->Send("", std::move(fds));
  CHECK_FALSE(sent);
  CHECK(pair.near->Send("goes on"));
  pair.far_received.AwaitFrames(1);
}

}  // namespace
}  // namespace ringd
