#include "client/core/tensors/arena.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <string>

#include "proto/base/memfd.h"

namespace ringd::client {
namespace {

using Catch::Matchers::Contains;

Arena MakeArena(std::uint64_t bytes) {
  const auto fd = CreateSealedMemfd("arena-test", bytes);
  REQUIRE(fd.ok());
  auto mapping = MemoryMapping::Map(fd->get(), bytes);
  REQUIRE(mapping.ok());
  return Arena(*std::move(mapping));
}

TEST_CASE("Arena: memory is zero, also when it has been used before") {
  Arena arena = MakeArena(1 << 16);
  for (int round = 0; round < 3; ++round) {
    const auto address = arena.AllocateZeroed(1000 + 1000 * round);
    REQUIRE(address.ok());
    auto* bytes = static_cast<unsigned char*>(*address);
    int nonzero = 0;
    for (int i = 0; i < 1000 + 1000 * round; ++i) nonzero += bytes[i] != 0;
    CHECK(nonzero == 0);
    std::memset(bytes, 0xff, 1000 + 1000 * round);
    REQUIRE(arena.Free(bytes));
  }
}

TEST_CASE("Arena: when it is full the error names limit and setting") {
  Arena arena = MakeArena(1 << 20);
  REQUIRE(arena.AllocateZeroed(600 << 10).ok());
  const auto address = arena.AllocateZeroed(600 << 10);
  CHECK(absl::IsResourceExhausted(address.status()));
  CHECK_THAT(std::string(address.status().message()),
             Contains("arena of 1 MiB is full") && Contains("600 KiB were asked for") &&
                 Contains("arena_bytes") && Contains("RINGD_ARENA_BYTES"));
}

TEST_CASE("Arena: asks for memory back before it gives up, once") {
  Arena arena = MakeArena(1 << 20);
  const auto held = arena.AllocateOffset(1 << 20);
  REQUIRE(held.ok());
  int asked = 0;
  const bool is_ours = GENERATE(true, false);
  arena.set_reclaim([&] {
    if (++asked == 1) arena.FreeOffset(*held);
    return is_ours;  // else another thread's
  });
  CHECK(arena.AllocateZeroed(1 << 20).ok());
  CHECK(asked == 1);
  CHECK_FALSE(arena.AllocateZeroed(1).ok());
  CHECK(asked == 2);
}

TEST_CASE("Arena: tells inside, outside and across the edges") {
  Arena arena = MakeArena(4096);
  const std::byte* begin = arena.AtOffset(0);
  using Position = Arena::Position;
  CHECK(arena.Locate(begin, 4096) == Position::kInside);
  CHECK(arena.Locate(begin + 4095, 1) == Position::kInside);
  CHECK(arena.Locate(begin, 4097) == Position::kStraddling);
  CHECK(arena.Locate(begin + 4095, 2) == Position::kStraddling);
  CHECK(arena.Locate(begin + 10, ~std::uint64_t{0}) == Position::kStraddling);
  CHECK(arena.Locate(begin - 8, 16) == Position::kStraddling);
  CHECK(arena.Locate(begin - 8, 8) == Position::kOutside);
  CHECK(arena.Locate(begin + 4096, 8) == Position::kOutside);
  int local = 0;
  CHECK(arena.Locate(&local, sizeof(local)) == Position::kOutside);
}

TEST_CASE("Arena: freeing an address that was not handed out is refused") {
  Arena arena = MakeArena(4096);
  int local = 0;
  CHECK_FALSE(arena.Free(&local));
  CHECK_FALSE(arena.Free(arena.AtOffset(64)));
}

}  // namespace
}  // namespace ringd::client
