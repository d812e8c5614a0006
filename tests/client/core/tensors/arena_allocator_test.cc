#include "client/core/tensors/arena_allocator.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

namespace ringd::client {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

TEST_CASE("ArenaAllocator: alignment grows with size") {
  ArenaAllocator allocator(64 * kMiB);
  CHECK(allocator.Allocate(1)->offset % 64 == 0);
  CHECK(allocator.Allocate(0)->offset % 64 == 0);
  CHECK(allocator.Allocate(5000)->offset % 4096 == 0);
  CHECK(allocator.Allocate(3 * kMiB)->offset % (2 * kMiB) == 0);
}

TEST_CASE("ArenaAllocator: fills to the last byte, then fails, and has all back after freeing") {
  ArenaAllocator allocator(1024);
  std::vector<std::uint64_t> offsets;
  for (int i = 0; i < 16; ++i) offsets.push_back(allocator.Allocate(64)->offset);
  CHECK(allocator.used_bytes() == 1024);
  CHECK(allocator.LargestFree() == 0);
  CHECK_FALSE(allocator.Allocate(1).has_value());
  for (std::size_t i = 0; i < 16; i += 2) REQUIRE(allocator.Free(offsets[i]));
  CHECK(allocator.LargestFree() == 64);
  CHECK_FALSE(allocator.Allocate(65).has_value());
  for (std::size_t i = 1; i < 16; i += 2) REQUIRE(allocator.Free(offsets[i]));
  CHECK(allocator.LargestFree() == 1024);
  CHECK(allocator.used_bytes() == 0);
}

TEST_CASE("ArenaAllocator: what is asked for beyond reason fails and changes nothing") {
  ArenaAllocator allocator(4096);
  CHECK_FALSE(allocator.Allocate(4097).has_value());
  CHECK_FALSE(allocator.Allocate(~std::uint64_t{0}).has_value());
  CHECK(allocator.LargestFree() == 4096);
  ArenaAllocator none(0);
  CHECK_FALSE(none.Allocate(0).has_value());
}

TEST_CASE("ArenaAllocator: freeing what was not allocated is refused") {
  ArenaAllocator allocator(4096);
  const std::uint64_t offset = allocator.Allocate(128)->offset;
  CHECK_FALSE(allocator.Free(offset + 64));
  CHECK_FALSE(allocator.Free(1 << 30));
  CHECK(allocator.Free(offset));
  CHECK_FALSE(allocator.Free(offset));
}

TEST_CASE("ArenaAllocator: says which bytes were handed out before") {
  ArenaAllocator allocator(8192);
  const auto first = allocator.Allocate(128);
  CHECK(first->used_before_bytes == 0);
  REQUIRE(allocator.Free(first->offset));
  const auto larger = allocator.Allocate(256);
  CHECK(larger->offset == first->offset);
  CHECK(larger->used_before_bytes == 128);
}

TEST_CASE("ArenaAllocator: a large piece still fits unaligned when it fits no other way") {
  ArenaAllocator allocator(2 * kMiB + 128);
  REQUIRE(allocator.Allocate(64)->offset == 0);
  const auto large = allocator.Allocate(2 * kMiB);
  REQUIRE(large.has_value());
  CHECK(large->offset == 64);
}

TEST_CASE("ArenaAllocator: random use never overlaps and never loses a byte") {
  constexpr std::uint64_t kCapacity = 8 * kMiB;
  ArenaAllocator allocator(kCapacity);
  std::mt19937_64 random(GENERATE(1, 2, 3));
  std::map<std::uint64_t, std::uint64_t> live;  // offset -> end
  for (int step = 0; step < 5000; ++step) {
    if (live.empty() || random() % 5 < 3) {
      const std::uint64_t bytes = 1 + random() % (std::uint64_t{1} << (random() % 21));
      const auto allocation = allocator.Allocate(bytes);
      if (!allocation.has_value()) {
        REQUIRE(allocator.LargestFree() < (bytes + 63) / 64 * 64);
        continue;
      }
      const std::uint64_t end = allocation->offset + bytes;
      REQUIRE(end <= kCapacity);
      const auto next = live.lower_bound(allocation->offset);
      REQUIRE((next == live.end() || next->first >= end));
      REQUIRE((next == live.begin() || std::prev(next)->second <= allocation->offset));
      live[allocation->offset] = end;
    } else {
      auto victim = live.begin();
      std::advance(victim, static_cast<long>(random() % live.size()));
      REQUIRE(allocator.Free(victim->first));
      live.erase(victim);
    }
  }
  for (const auto& [offset, end] : live) REQUIRE(allocator.Free(offset));
  CHECK(allocator.LargestFree() == kCapacity);
}

}  // namespace
}  // namespace ringd::client
