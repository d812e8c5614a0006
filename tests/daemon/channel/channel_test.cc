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
#include <mutex>
#include <optional>
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

// Sends descriptors that nobody else holds any more, with a byte.
void SendAway(const UniqueFd& socket, UniqueFd fd) {
  const std::array<std::byte, 1> byte{};
  const std::array<int, 1> fds = {fd.get()};
  REQUIRE(SendWithFds(socket.get(), byte, fds, Clock::now()).ok());
}

TEST_CASE("ChannelLoop: descriptors whose close waits keep no other channel waiting") {
  IsolatedExecutor isolated;
  Received bad_received;
  Received good_received;
  std::vector<UniqueFd> far;
  const std::unique_ptr<ChannelLoop> loop = *ChannelLoop::Start("channel-test", &isolated);
  const auto add = [&](Received& received, ChannelLimits limits) {
    auto ends = UnixSocketPair();
    REQUIRE(ends.ok());
    far.push_back(std::move(ends->second));
    return *loop->Add(std::move(ends->first), received.Events(), limits);
  };
  // Such as are not asked for, or belong to no frame.
  ChannelLimits limits;
  limits.takes_fds = GENERATE(false, true);
  auto bad = add(bad_received, limits);
  const auto good = add(good_received, {});
  std::vector<std::array<UniqueFd, 2>> lingering;
  for (int i = 0; i < 40; ++i) {
    lingering.push_back(testing::TcpPair());
    testing::MakeLinger(lingering.back()[0].get());
  }
  const auto began = Clock::now();
  // What is not read any more goes with the channel's socket.
  for (auto& pair : lingering) SendAway(far[0], std::move(pair[0]));
  CHECK_FALSE(bad_received.AwaitEnd().ok());
  bad.reset();
  const std::string frame = Header(4, 0) + "beat";
  for (std::size_t i = 1; i <= 3; ++i) {
    REQUIRE(::send(far[1].get(), frame.data(), frame.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(frame.size()));
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
