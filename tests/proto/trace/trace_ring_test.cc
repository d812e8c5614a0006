#include "proto/trace/trace_ring.h"

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace ringd {
namespace {

constexpr std::uint32_t kCapacity = 16;

struct Memory {
  alignas(kCacheLineBytes) std::array<std::byte, TraceRingBytes(kCapacity)> bytes{};

  TraceRingView view() { return ViewTraceRing(bytes.data(), kCapacity); }
};

// Whole if all its numbers tell of one another.
TraceEvent Numbered(std::uint64_t number) {
  TraceEvent event;
  event.at_ns = number;
  event.value = ~number;
  event.channel = static_cast<std::uint32_t>(number);
  event.sequence = static_cast<std::uint32_t>(number >> 32);
  event.tensor = static_cast<std::uint32_t>(number * 3);
  event.stage = TraceStage::kSubmitted;
  return event;
}

bool IsWhole(const TraceEvent& event) {
  const TraceEvent expected = Numbered(event.at_ns);
  return std::memcmp(&event, &expected, sizeof(event)) == 0;
}

TEST_CASE("TraceRing: events are read in the order in which they were written, each once") {
  Memory memory;
  TraceWriter writer(memory.view());
  const TraceReader reader(memory.view());
  std::vector<TraceEvent> events;
  std::uint64_t next = 0;
  for (std::uint64_t round = 0; round < 20; ++round) {
    for (std::uint64_t i = 0; i < 5; ++i) writer.Write(Numbered(round * 5 + i));
    const TraceRead read = reader.Read(next, kCapacity, events);
    CHECK(read.lost == 0);
    CHECK_FALSE(read.more);
    next = read.next;
  }
  REQUIRE(events.size() == 100);
  for (std::uint64_t i = 0; i < events.size(); ++i) CHECK(events[i].at_ns == i);
}

TEST_CASE("TraceRing: a reader that comes late gets the newest, and hears how many it has lost") {
  Memory memory;
  TraceWriter writer(memory.view());
  for (std::uint64_t i = 0; i < 100; ++i) writer.Write(Numbered(i));
  std::vector<TraceEvent> events;
  const TraceRead read = TraceReader(memory.view()).Read(3, kCapacity, events);
  // The slot of the oldest counts as being written: a reader can't know better.
  REQUIRE(events.size() == kCapacity - 1);
  CHECK(events.front().at_ns == 100 - kCapacity + 1);
  CHECK(events.back().at_ns == 99);
  CHECK(read.lost == 100 - kCapacity + 1 - 3);
  CHECK(read.next == 100);
}

TEST_CASE("TraceRing: a read is as long as was asked for, and says that there is more") {
  Memory memory;
  TraceWriter writer(memory.view());
  for (std::uint64_t i = 0; i < 10; ++i) writer.Write(Numbered(i));
  std::vector<TraceEvent> events;
  const TraceReader reader(memory.view());
  TraceRead read = reader.Read(0, 4, events);
  CHECK(events.size() == 4);
  CHECK(read.next == 4);
  CHECK(read.more);
  read = reader.Read(read.next, 6, events);
  CHECK(events.size() == 10);
  CHECK_FALSE(read.more);
}

TEST_CASE("TraceRing: a writer without a ring writes nowhere") {
  TraceWriter writer;
  writer.Write(Numbered(1));
  SUCCEED();
}

TEST_CASE("TraceRing: whatever a header says, a read is bounded and ends") {
  Memory memory;
  const TraceReader reader(memory.view());
  for (const std::uint64_t claimed : {std::uint64_t{1}, std::uint64_t{1} << 40, UINT64_MAX}) {
    memory.view().header->written.store(claimed);
    for (const std::uint64_t from : {std::uint64_t{0}, claimed - 1, claimed, UINT64_MAX}) {
      std::vector<TraceEvent> events;
      const TraceRead read = reader.Read(from, SIZE_MAX, events);
      CHECK(events.size() <= kCapacity);
      CHECK(read.next == claimed);
    }
  }
  // It goes back.
  memory.view().header->written.store(5);
  std::vector<TraceEvent> events;
  CHECK(reader.Read(1000, SIZE_MAX, events).next == 5);
  CHECK(events.empty());
}

TEST_CASE("TraceRing: a reader beside a writer that overtakes it sees whole events only") {
  Memory memory;
  constexpr std::uint64_t kEvents = 300'000;
  std::atomic<bool> done{false};
  std::thread thread([&] {
    TraceWriter writer(memory.view());
    for (std::uint64_t i = 0; i < kEvents; ++i) writer.Write(Numbered(i));
    done = true;
  });
  const TraceReader reader(memory.view());
  std::uint64_t next = 0;
  std::uint64_t seen = 0;
  std::uint64_t lost = 0;
  std::uint64_t torn = 0;
  std::uint64_t misplaced = 0;
  std::vector<TraceEvent> events;
  while (!done || next < kEvents) {
    events.clear();
    const TraceRead read = reader.Read(next, SIZE_MAX, events);
    for (std::size_t i = 0; i < events.size(); ++i) {
      if (!IsWhole(events[i])) ++torn;
      if (events[i].at_ns != read.next - events.size() + i) ++misplaced;
    }
    seen += events.size();
    lost += read.lost;
    next = read.next;
  }
  thread.join();
  CHECK(torn == 0);
  CHECK(misplaced == 0);
  CHECK(seen + lost == kEvents);
  CHECK(seen > 0);
}

}  // namespace
}  // namespace ringd
