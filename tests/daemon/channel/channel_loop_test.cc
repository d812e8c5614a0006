// Who waits for whom, and for room, among channels that one thread reads.
#include "daemon/channel/channel_loop.h"

#include <sys/socket.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "proto/base/clock.h"
#include "proto/base/counted_places.h"
#include "proto/base/mutex.h"
#include "proto/base/unix_socket.h"
#include "proto/channel/channel.h"

namespace ringd {
namespace {

using std::chrono::milliseconds;

bool Within(const std::function<bool()>& is_so) {
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(60);
  while (!is_so()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

std::string HeaderOf(std::size_t bytes) {
  const std::uint32_t header[2] = {static_cast<std::uint32_t>(bytes), 0};
  return std::string(reinterpret_cast<const char*>(header), sizeof(header));
}

std::string FrameOf(const std::string& payload) { return HeaderOf(payload.size()) + payload; }

// What one channel brings, and the socket of its other end.
struct Speaker {
  explicit Speaker(
      ChannelLoop& loop, std::function<void()> on_frame = [] {},
      decltype(ChannelEvents::room) room = nullptr, decltype(ChannelEvents::flow) flow = nullptr) {
    auto ends = UnixSocketPair();
    REQUIRE(ends.ok());
    ChannelEvents events;
    events.on_frame = [this, on_frame = std::move(on_frame)](ChannelFrame frame) {
      on_frame();
      const MutexLock lock(mutex);
      frames.push_back(std::move(frame));
      ++count;
    };
    events.on_end = [this](const absl::Status&) { has_ended = true; };
    events.room = std::move(room);
    events.flow = std::move(flow);
    channel = *loop.Add(std::move(ends->first), std::move(events));
    other = std::move(ends->second);
  }
  // All of it fits into the socket.
  void Say(const std::string& bytes) {
    REQUIRE(::send(other.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(bytes.size()));
  }
  // As much as the socket takes within a minute.
  bool SayAll(const std::string& bytes) {
    std::size_t sent = 0;
    return Within([&] {
      const ssize_t some = ::send(other.get(), bytes.data() + sent, bytes.size() - sent,
                                  MSG_NOSIGNAL | MSG_DONTWAIT);
      if (some > 0) sent += static_cast<std::size_t>(some);
      return sent == bytes.size();
    });
  }
  void Forget() {
    const MutexLock lock(mutex);
    frames.clear();
  }

  Mutex mutex;
  std::vector<ChannelFrame> frames ABSL_GUARDED_BY(mutex);
  std::atomic<std::size_t> count{0};
  std::atomic<bool> has_ended{false};
  std::shared_ptr<Channel> channel;
  UniqueFd other;
};

// The loop goes first: it calls the speakers.
struct Speakers {
  template <typename... Arguments>
  Speaker& Add(Arguments&&... arguments) {
    return all.emplace_back(*loop, std::forward<Arguments>(arguments)...);
  }

  std::deque<Speaker> all;
  const std::unique_ptr<ChannelLoop> loop = *ChannelLoop::Start("channel-test");
};

TEST_CASE("ChannelLoop: one that has much to say is interrupted for the others after each turn") {
  std::atomic<bool> released{false};
  std::atomic<std::size_t> said_before{0};
  Speakers speakers;
  Speaker& first = speakers.Add([&] { Within([&] { return released.load(); }); });
  // Each of its frames takes longer than a turn.
  Speaker& talker = speakers.Add([] { std::this_thread::sleep_for(2 * ChannelLoop::kTurn); });
  Speaker& other = speakers.Add([&] { said_before = talker.count.load(); });
  constexpr std::size_t kFrames = 300;
  std::string much;
  for (std::size_t i = 0; i < kFrames; ++i) much += FrameOf("x");
  // Holds up the thread until the two have spoken.
  first.Say(FrameOf("x"));
  talker.Say(much);
  other.Say(FrameOf("x"));
  released = true;
  REQUIRE(Within([&] { return other.count == 1; }));
  CHECK(said_before <= 3);
  // What it has said is not lost, although the socket has nothing more.
  CHECK(Within([&] { return talker.count == kFrames; }));
}

TEST_CASE("ChannelLoop: a flow with many channels has a turn as one with a single channel") {
  std::atomic<bool> released{false};
  std::atomic<int> said{0};
  std::atomic<int> said_before{0};
  Speakers speakers;
  Speaker& first = speakers.Add([&] { Within([&] { return released.load(); }); });
  std::vector<Speaker*> talkers;
  for (int i = 0; i < 20; ++i) {
    const auto on_frame = [&] {
      std::this_thread::sleep_for(2 * ChannelLoop::kTurn);
      ++said;
    };
    talkers.push_back(&speakers.Add(on_frame, nullptr, [] { return std::uint64_t{7}; }));
  }
  Speaker& other = speakers.Add([&] { said_before = said.load(); });
  first.Say(FrameOf("x"));
  for (Speaker* talker : talkers) talker->Say(FrameOf("x") + FrameOf("x") + FrameOf("x"));
  other.Say(FrameOf("x"));
  released = true;
  REQUIRE(Within([&] { return other.count == 1; }));
  CHECK(said_before <= 3);
  // Each of them has its turn.
  CHECK(Within([&] { return said == 60; }));
}

TEST_CASE("ChannelLoop: what was said before the other side has gone comes before its end") {
  Speakers speakers;
  Speaker& talker = speakers.Add([] { std::this_thread::sleep_for(2 * ChannelLoop::kTurn); });
  std::string much;
  for (int i = 0; i < 50; ++i) much += FrameOf("x");
  talker.Say(much);
  talker.other.Reset();
  REQUIRE(Within([&] { return talker.has_ended.load(); }));
  CHECK(talker.count == 50);
}

TEST_CASE("ChannelLoop: long frames wait for room, small ones and other channels for none") {
  CountedPlaces places(std::size_t{1} << 20);
  const auto room = [&places](std::size_t bytes) { return places.Take(bytes); };
  Speakers speakers;
  Speaker& first = speakers.Add([] {}, room);
  Speaker& second = speakers.Add([] {}, room);
  Speaker& third = speakers.Add([] {}, room);
  const std::string small(ChannelLoop::kSmallFrame, 's');
  // One that has come in part has its room.
  const std::string longest(std::size_t{3} << 20, 'l');
  const std::string most_of_it = FrameOf(longest).substr(0, std::size_t{2} << 20);
  REQUIRE(first.SayAll(most_of_it));
  second.Say(FrameOf(std::string(100'000, 'x')) + FrameOf(small));
  third.Say(FrameOf(small));
  REQUIRE(Within([&] { return third.count == 1; }));
  std::this_thread::sleep_for(milliseconds(100));
  CHECK(second.count == 0);
  CHECK(second.channel->HasUntaken());
  // The longest one has room by itself, and keeps it as long as anybody has it.
  REQUIRE(first.SayAll(FrameOf(longest).substr(most_of_it.size())));
  REQUIRE(Within([&] { return first.count == 1; }));
  std::this_thread::sleep_for(milliseconds(100));
  CHECK(second.count == 0);
  first.Forget();
  CHECK(Within([&] { return second.count == 2; }));
  CHECK(Within([&] { return !second.channel->HasUntaken(); }));
  // And so does the next one.
  second.Forget();
  REQUIRE(second.SayAll(FrameOf(longest)));
  CHECK(Within([&] { return second.count == 3; }));
}

TEST_CASE("ChannelLoop: one that waits for room is sent what is said to it, and ends") {
  const auto no_room = [](std::size_t) { return std::shared_ptr<const void>(); };
  Speakers speakers;
  Speaker& waiting = speakers.Add([] {}, no_room);
  REQUIRE(Within(
      [&] { return ::send(waiting.other.get(), HeaderOf(1 << 20).data(), 8, MSG_NOSIGNAL) == 8; }));
  // More than the socket takes at once.
  const std::string said(std::size_t{3} << 20, 'x');
  REQUIRE(waiting.channel->Send(said));
  std::size_t heard = 0;
  std::vector<char> piece(std::size_t{1} << 20);
  REQUIRE(Within([&] {
    const ssize_t some = ::recv(waiting.other.get(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (some > 0) heard += static_cast<std::size_t>(some);
    return heard == 8 + said.size();
  }));
  waiting.other.Reset();
  CHECK(Within([&] { return waiting.has_ended.load(); }));
  CHECK(waiting.count == 0);
}

TEST_CASE("Channel: what a long frame took is given back, whatever was sent behind it") {
  auto ends = UnixSocketPair();
  REQUIRE(ends.ok());
  Channel channel(std::move(ends->first), {}, nullptr);
  const std::string bytes = FrameOf(std::string(std::size_t{20} << 20, 'x')) + "part";
  std::size_t sent = 0;
  std::size_t taken = 0;
  REQUIRE(Within([&] {
    const ssize_t some = ::send(ends->second.get(), bytes.data() + sent, bytes.size() - sent,
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (some > 0) sent += static_cast<std::size_t>(some);
    CHECK(channel.Read(1 << 20, [&](const ChannelFrame&) { ++taken; }).ok());
    return sent == bytes.size();
  }));
  CHECK(channel.Read(1 << 20, [&](const ChannelFrame&) { ++taken; }).ok());
  CHECK(taken == 1);
  CHECK(channel.kept_bytes() < (std::size_t{2} << 20));
}

}  // namespace
}  // namespace ringd
