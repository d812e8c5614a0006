#include "backends/tcp/tcp_connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "backends/socket_options.h"
#include "backends/tcp/tcp_poller.h"
#include "proto/base/clock.h"
#include "tests/backends/tcp_pair.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;

constexpr FrameScope kScope{.wire_id = 4711, .peer = 1, .self = 0};

// Takes what comes in, and owns the connection.
class Taker final : public TcpConnection::Owner {
 public:
  explicit Taker(std::size_t turn_bytes = 1 << 20)
      : connection(std::move(pair.one), kScope, 1, poller, *this), turn_bytes_(turn_bytes) {
    REQUIRE(connection.Start().ok());
    Turn();
  }

  void Turn() {
    poller.Poll();
    poller.ForEachReady([](TcpConnection& ready) { ready.HandleReady(); });
  }
  template <typename Done>
  bool RunUntil(Done done) {
    const Clock::time_point deadline = Clock::now() + std::chrono::seconds(20);
    while (!done()) {
      if (Clock::now() > deadline) return false;
      Turn();
    }
    return true;
  }
  void Write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t sent =
          ::send(pair.other.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) bytes = bytes.subspan(static_cast<std::size_t>(sent));
      if (!bytes.empty()) Turn();
    }
  }

  void OnReady(TcpConnection& ready) noexcept override {
    done = ready.Continue();
    ready.Read(turn_bytes_);
  }
  void OnMessage(const MessageHeader& header,
                 std::span<const std::byte> payload) noexcept override {
    indices.push_back(header.index);
    payloads.emplace_back(payload.begin(), payload.end());
    aligned =
        aligned && (payload.empty() || reinterpret_cast<std::uintptr_t>(payload.data()) % 64 == 0);
  }

  TcpPair pair;
  TcpPoller poller;
  TcpConnection connection;
  TcpSend* done = nullptr;
  std::vector<std::uint32_t> indices;
  std::vector<std::vector<std::byte>> payloads;
  bool aligned = true;

 private:
  const std::size_t turn_bytes_;
};

struct Observer final : SendObserver {
  void OnSent(NodeIndex) noexcept override {}
  std::uint64_t order() const noexcept override { return 0; }
};

FrameHead HeadOf(std::uint32_t index, std::size_t payload_bytes) {
  FrameHead head;
  head.message.wire_id = kScope.wire_id;
  head.message.source = kScope.peer;
  head.message.destination = kScope.self;
  head.message.index = index;
  head.payload_bytes = static_cast<std::uint32_t>(payload_bytes);
  return head;
}

void Append(std::vector<std::byte>& bytes, const FrameHead& head,
            const std::vector<std::byte>& payload = {}) {
  const auto head_bytes = std::as_bytes(std::span(&head, 1));
  bytes.insert(bytes.end(), head_bytes.begin(), head_bytes.end());
  bytes.insert(bytes.end(), payload.begin(), payload.end());
}

std::vector<std::byte> Noise(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

TEST_CASE("TcpConnection: frames come whole and aligned, however they are cut") {
  const unsigned seed = GENERATE(range(0u, 12u));
  INFO("seed " << seed);
  std::mt19937 random(seed);
  std::vector<std::byte> bytes;
  std::vector<std::vector<std::byte>> sent;
  for (std::uint32_t i = 0; i < 120; ++i) {
    const std::size_t sizes[] = {0, random() % 100, random() % 9000, kMaxPayloadBytes, 4096};
    sent.push_back(Noise(sizes[random() % (seed % 5 + 1)], i));
    Append(bytes, HeadOf(i, sent.back().size()), sent.back());
  }
  // A turn may end in the middle of what has come.
  Taker taker(seed % 3 == 0 ? 1 : 1 << 20);
  const std::size_t most = seed % 2 == 0 ? 64 : 60'000;
  for (std::size_t at = 0; at < bytes.size();) {
    std::size_t count = std::min(bytes.size() - at, 1 + random() % most);
    // The very small pieces would take long for large frames.
    if (seed % 2 == 0 && random() % 4 == 0)
      count = std::min<std::size_t>(bytes.size() - at, 50'000);
    taker.Write(std::span(bytes).subspan(at, count));
    at += count;
    taker.Turn();
  }
  REQUIRE(taker.RunUntil([&] { return taker.payloads.size() == sent.size(); }));
  CHECK((taker.payloads == sent));
  CHECK(std::is_sorted(taker.indices.begin(), taker.indices.end()));
  CHECK(taker.aligned);
  CHECK_FALSE(taker.connection.ended());
}

TEST_CASE("TcpConnection: what is no frame of the other node's ends it, and nothing is handed on") {
  Taker taker;
  FrameHead head = HeadOf(0, 8);
  std::string complaint;
  SECTION("magic") {
    head.message.magic ^= 1;
    complaint = "no message";
  }
  SECTION("length") {
    head.payload_bytes = 0xffffffff;
    complaint = "longer";
  }
  SECTION("length, by one") {
    head.payload_bytes = kMaxPayloadBytes + 1;
    complaint = "longer";
  }
  SECTION("wire id") {
    head.message.wire_id += 1;
    complaint = "another job";
  }
  SECTION("source") {
    head.message.source = 2;
    complaint = "another node's name";
  }
  SECTION("destination") {
    head.message.destination = -1;
    complaint = "for another node";
  }
  SECTION("type") {
    head.message.type = static_cast<MessageType>(3);
    complaint = "no known type";
  }
  SECTION("kind") {
    head.kind = static_cast<FrameKind>(2);
    complaint = "no known kind";
  }
  SECTION("goodbye") {
    head.kind = FrameKind::kGoodbye;
    complaint = "goodbye with a payload";
  }
  std::vector<std::byte> bytes;
  Append(bytes, HeadOf(0, 0));
  Append(bytes, head, Noise(8, 1));
  Append(bytes, HeadOf(2, 0));
  taker.Write(bytes);
  REQUIRE(taker.RunUntil([&] { return taker.connection.ended(); }));
  CHECK(absl::IsInternal(taker.connection.end()));
  CHECK_THAT(std::string(taker.connection.end().message()),
             Contains(complaint) && Contains("127.0.0.1:"));
  CHECK(taker.payloads.size() == 1);
}

TEST_CASE("TcpConnection: after a goodbye may come the end, but no message") {
  Taker taker;
  FrameHead goodbye = HeadOf(0, 0);
  goodbye.kind = FrameKind::kGoodbye;
  std::vector<std::byte> bytes;
  Append(bytes, HeadOf(7, 0));
  Append(bytes, goodbye);
  SECTION("the end") {
    taker.Write(bytes);
    REQUIRE(taker.RunUntil([&] { return taker.connection.peer_left(); }));
    CHECK_FALSE(taker.connection.ended());
    taker.pair.other.Reset();
    REQUIRE(taker.RunUntil([&] { return taker.connection.ended(); }));
    CHECK(absl::IsUnavailable(taker.connection.end()));
  }
  SECTION("a message") {
    Append(bytes, HeadOf(8, 0));
    taker.Write(bytes);
    REQUIRE(taker.RunUntil([&] { return taker.connection.ended(); }));
    CHECK(absl::IsInternal(taker.connection.end()));
  }
  CHECK(taker.indices == std::vector<std::uint32_t>{7});
}

TEST_CASE("TcpConnection: an end that comes with the last bytes is seen") {
  Taker taker;
  std::vector<std::byte> bytes;
  Append(bytes, HeadOf(7, 0));
  taker.Write(bytes);
  taker.pair.other.Reset();
  REQUIRE(taker.RunUntil([&] { return taker.connection.ended(); }));
  CHECK(taker.indices == std::vector<std::uint32_t>{7});
  CHECK(absl::IsUnavailable(taker.connection.end()));
}

// Begins sends until the socket takes one only in part.
TcpSend* FillUp(Taker& taker, TcpSend& send) {
  for (int i = 0; i < 10'000; ++i) {
    REQUIRE(taker.connection.CanBegin());
    if (!taker.connection.Begin(send)) return &send;
  }
  FAIL("the socket takes everything");
  return nullptr;
}

// All that the other side can read, while the connection goes on.
std::vector<std::byte> Drain(Taker& taker) {
  std::vector<std::byte> all;
  std::vector<std::byte> part(1 << 16);
  int idle = 0;
  while (idle < 200) {
    taker.Turn();
    const ssize_t got = ::recv(taker.pair.other.get(), part.data(), part.size(), MSG_DONTWAIT);
    if (got > 0) all.insert(all.end(), part.begin(), part.begin() + got);
    idle = got > 0 ? 0 : idle + 1;
    pollfd readable{taker.pair.other.get(), POLLIN, 0};
    if (got <= 0) ::poll(&readable, 1, 1);
  }
  return all;
}

TEST_CASE("TcpConnection: a payload that was taken back is free at once, and arrives as it was") {
  Taker taker;
  Observer observer;
  Observer somebody_else;
  std::vector<std::byte> payload = Noise(kMaxPayloadBytes, 3);
  const std::vector<std::byte> original = payload;
  TcpSend send;
  send.Set(NodeIndex(1), HeadOf(5, 0).message, payload, &observer);
  FillUp(taker, send);
  CHECK_FALSE(taker.connection.CanBegin());
  CHECK(taker.connection.TakeBack(&somebody_else) == nullptr);
  CHECK(taker.connection.TakeBack(&observer) == &send);
  CHECK(taker.connection.TakeBack(&observer) == nullptr);
  std::fill(payload.begin(), payload.end(), std::byte{0xee});
  const std::vector<std::byte> got = Drain(taker);
  CHECK(taker.connection.is_flushed());
  REQUIRE(got.size() % (sizeof(FrameHead) + payload.size()) == 0);
  for (std::size_t at = 0; at < got.size(); at += sizeof(FrameHead) + payload.size()) {
    const std::byte* const begin = got.data() + at + sizeof(FrameHead);
    CHECK(std::equal(original.begin(), original.end(), begin));
  }
}

TEST_CASE("TcpConnection: a send goes on when there is room, and the goodbye is behind it") {
  Taker taker;
  Observer observer;
  const std::vector<std::byte> payload = Noise(kMaxPayloadBytes, 4);
  TcpSend send;
  send.Set(NodeIndex(1), HeadOf(5, 0).message, payload, &observer);
  FillUp(taker, send);
  std::vector<std::byte> got = Drain(taker);
  CHECK(taker.connection.CanBegin());
  CHECK(got.size() % (sizeof(FrameHead) + payload.size()) == 0);

  FillUp(taker, send);
  CHECK(taker.connection.TakeBack(nullptr) == &send);
  taker.connection.SayGoodbye();
  CHECK_FALSE(taker.connection.is_flushed());
  got = Drain(taker);
  CHECK(taker.connection.is_flushed());
  REQUIRE(got.size() >= sizeof(FrameHead));
  FrameHead last;
  std::memcpy(&last, got.data() + got.size() - sizeof(last), sizeof(last));
  CHECK(last.kind == FrameKind::kGoodbye);
  CHECK(ProblemOf(last, {kScope.wire_id, kScope.self, kScope.peer}) == nullptr);
}

TEST_CASE("TcpConnection: when the other side is gone payloads are free, and the cause is told") {
  Taker taker;
  Observer observer;
  const std::vector<std::byte> payload = Noise(kMaxPayloadBytes, 4);
  TcpSend send;
  send.Set(NodeIndex(1), HeadOf(5, 0).message, payload, &observer);
  FillUp(taker, send);
  taker.pair.other.Reset();  // what it has not read makes this a reset
  REQUIRE(taker.RunUntil([&] { return taker.connection.ended(); }));
  CHECK(absl::IsUnavailable(taker.connection.end()));
  CHECK_THAT(std::string(taker.connection.end().message()), Contains("127.0.0.1:"));
  CHECK((taker.done == &send || taker.connection.TakeBack(nullptr) == &send));
  CHECK_FALSE(taker.connection.CanBegin());
}

// Whether a thread that sleeps would be woken within `patience`.
bool IsWoken(const Taker& taker, std::chrono::milliseconds patience) {
  pollfd entry{taker.poller.fd(), POLLIN, 0};
  return ::poll(&entry, 1, static_cast<int>(patience.count())) == 1;
}

TEST_CASE("TcpConnection: a thread that sleeps is woken for whole frames, and for whatever ends") {
  using std::chrono::milliseconds, std::chrono::seconds;
  const std::vector<std::byte> payload = Noise(kMaxPayloadBytes, 5);
  std::vector<std::byte> frame;
  Append(frame, HeadOf(0, payload.size()), payload);
  const std::span<const std::byte> bytes(frame);
  Taker taker;
  // As all connections have it: without room for the frame the kernel wakes earlier.
  OpenReceiveWindow(taker.connection.fd(), kReceiveWindowBytes);
  while (IsWoken(taker, milliseconds(0))) taker.Turn();
  taker.Write(bytes.first(50'000));
  REQUIRE(taker.RunUntil([&] { return !IsWoken(taker, milliseconds(20)); }));
  taker.poller.AwaitWholeFrames();
  taker.Write(bytes.subspan(50'000, 50'000));
  CHECK_FALSE(IsWoken(taker, milliseconds(100)));
  SECTION("the frame is whole, and then the next one begins") {
    taker.Write(bytes.subspan(100'000));
    REQUIRE(IsWoken(taker, seconds(10)));
    REQUIRE(taker.RunUntil([&] { return taker.payloads.size() == 1; }));
    CHECK((taker.payloads.front() == payload));
    while (IsWoken(taker, milliseconds(20))) taker.Turn();
    taker.poller.AwaitWholeFrames();
    taker.Write(bytes.first(1));
    CHECK(IsWoken(taker, seconds(10)));
  }
  SECTION("it never is") {
    taker.pair.other.Reset();
    REQUIRE(IsWoken(taker, seconds(10)));
    CHECK(taker.RunUntil([&] { return taker.connection.ended(); }));
  }
}

TEST_CASE("TcpConnection: whatever has come is not slept through") {
  const unsigned seed = GENERATE(range(0u, 8u));
  std::mt19937 random(seed);
  std::vector<std::byte> bytes;
  constexpr std::uint32_t kFrames = 60;
  for (std::uint32_t i = 0; i < kFrames; ++i) {
    const std::size_t sizes[] = {kMaxPayloadBytes, 0, random() % 100, random() % 9000, 60'000};
    const std::size_t size = sizes[random() % (seed % 5 + 1)];
    Append(bytes, HeadOf(i, size), Noise(size, i));
  }
  Taker taker;
  std::thread writer([&bytes, &random, fd = taker.pair.other.get()] {
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t count = std::min<std::size_t>(bytes.size() - at, 1 + random() % 40'000);
      const ssize_t sent = ::send(fd, bytes.data() + at, count, MSG_NOSIGNAL);
      if (sent <= 0) return;
      at += static_cast<std::size_t>(sent);
      if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  });
  bool slept_through = false;
  while (taker.payloads.size() < kFrames && !slept_through) {
    taker.Turn();
    if (taker.poller.has_ready() || taker.payloads.size() == kFrames) continue;
    taker.poller.AwaitWholeFrames();
    slept_through = !IsWoken(taker, std::chrono::seconds(10));
  }
  CHECK_FALSE(slept_through);
  ::shutdown(taker.pair.other.get(), SHUT_RDWR);
  writer.join();
}

}  // namespace
}  // namespace ringd
