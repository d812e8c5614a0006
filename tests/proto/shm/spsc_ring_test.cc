#include "proto/shm/spsc_ring.h"

#include <array>
#include <catch2/catch.hpp>
#include <cstdint>
#include <thread>

namespace ringd {
namespace {

struct Record {
  std::uint64_t value;
  std::uint64_t check;
};

constexpr std::uint32_t kCapacity = 8;

struct Memory {
  RingCursors cursors{};
  std::array<Record, kCapacity> records{};
};

TEST_CASE("SpscRing: records come out in the order in which they went in") {
  Memory memory;
  RingProducer<Record> producer(&memory.cursors, memory.records.data(), kCapacity);
  RingConsumer<Record> consumer(&memory.cursors, memory.records.data(), kCapacity);
  Record record{};
  CHECK(consumer.TryPop(record) == RingResult::kEmpty);
  for (std::uint64_t round = 0; round < 100; ++round) {
    CHECK_FALSE(consumer.HasWork());
    for (std::uint64_t i = 0; i < 5; ++i) {
      REQUIRE(producer.TryPush({round * 5 + i, 0}) == RingResult::kOk);
    }
    CHECK(consumer.HasWork());
    for (std::uint64_t i = 0; i < 5; ++i) {
      REQUIRE(consumer.TryPop(record) == RingResult::kOk);
      REQUIRE(record.value == round * 5 + i);
    }
  }
}

TEST_CASE("SpscRing: push into a full ring reports full and changes nothing") {
  Memory memory;
  RingProducer<Record> producer(&memory.cursors, memory.records.data(), kCapacity);
  RingConsumer<Record> consumer(&memory.cursors, memory.records.data(), kCapacity);
  for (std::uint64_t i = 0; i < kCapacity; ++i)
    REQUIRE(producer.TryPush({i, 0}) == RingResult::kOk);
  CHECK(producer.TryPush({99, 0}) == RingResult::kFull);
  Record record{};
  REQUIRE(consumer.TryPop(record) == RingResult::kOk);
  CHECK(record.value == 0);
  CHECK(producer.TryPush({kCapacity, 0}) == RingResult::kOk);
  for (std::uint64_t i = 1; i <= kCapacity; ++i) {
    REQUIRE(consumer.TryPop(record) == RingResult::kOk);
    CHECK(record.value == i);
  }
}

TEST_CASE(
    "SpscRing: a producer's cursor that jumps is reported as corrupt, forwards and backwards") {
  Memory memory;
  RingConsumer<Record> consumer(&memory.cursors, memory.records.data(), kCapacity);
  Record record{};
  for (const std::uint64_t cursor :
       {std::uint64_t{kCapacity + 1}, UINT64_MAX, std::uint64_t{1} << 63}) {
    memory.cursors.produced.store(cursor);
    CHECK(consumer.TryPop(record) == RingResult::kCorrupt);
  }
  memory.cursors.produced.store(kCapacity);
  CHECK(consumer.TryPop(record) == RingResult::kOk);
}

TEST_CASE(
    "SpscRing: a consumer's cursor that jumps is reported as corrupt once the ring looks full") {
  Memory memory;
  RingProducer<Record> producer(&memory.cursors, memory.records.data(), kCapacity);
  for (std::uint64_t i = 0; i < kCapacity; ++i)
    REQUIRE(producer.TryPush({i, 0}) == RingResult::kOk);
  memory.cursors.consumed.store(kCapacity + 5);  // more than was produced
  CHECK(producer.TryPush({0, 0}) == RingResult::kCorrupt);
}

TEST_CASE("SpscRing: two threads pass a hundred thousand whole records") {
  Memory memory;
  constexpr std::uint64_t kCount = 100'000;
  std::thread writer([&memory] {
    RingProducer<Record> producer(&memory.cursors, memory.records.data(), kCapacity);
    for (std::uint64_t i = 0; i < kCount;) {
      if (producer.TryPush({i, ~i}) == RingResult::kOk) {
        ++i;
      } else {
        std::this_thread::yield();
      }
    }
  });
  RingConsumer<Record> consumer(&memory.cursors, memory.records.data(), kCapacity);
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < kCount;) {
    Record record{};
    if (consumer.TryPop(record) != RingResult::kOk) {
      std::this_thread::yield();
      continue;
    }
    if (record.value != i || record.check != ~i) ++wrong;
    ++i;
  }
  writer.join();
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace ringd
