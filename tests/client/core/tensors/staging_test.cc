// Which blocks of the arena tensors of ordinary memory get.
#include "client/core/tensors/staging.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "client/core/tensors/arena.h"
#include "client/core/tensors/registrations.h"
#include "proto/base/memfd.h"
#include "proto/base/memory_mapping.h"

namespace ringd::client {
namespace {

constexpr std::uint64_t kArenaBytes = std::uint64_t{1} << 20;

MemoryMapping Map() {
  auto fd = CreateSealedMemfd("staging-test", kArenaBytes);
  REQUIRE(fd.ok());
  auto mapped = MemoryMapping::Map(fd->get(), kArenaBytes);
  REQUIRE(mapped.ok());
  return *std::move(mapped);
}

struct Fixture {
  Registration& Tensor(std::uint64_t bytes) {
    TensorDescription description;
    description.name = "t" + std::to_string(bytes);
    description.shape = {static_cast<std::int64_t>(bytes)};
    description.data_type = DataType::kUint8;
    description.element_count = bytes;
    return *registrations.Find(registrations.Add(description, {++count}, 0));
  }
  absl::Status Place(Registration& tensor, OperationEnd& end) {
    Submission record{};
    return staging.Place(tensor, memory.data(), memory.data(), record, end, {});
  }
  // Where a tensor of so many bytes is placed; its operation goes on.
  OperationEnd Begin(std::uint64_t bytes) {
    OperationEnd end;
    REQUIRE(Place(Tensor(bytes), end).ok());
    REQUIRE(end.staging_offset != kNoStaging);
    REQUIRE(end.staging_offset + bytes <= kArenaBytes);
    CHECK(std::memcmp(arena.AtOffset(end.staging_offset), memory.data(), bytes) == 0);
    return end;
  }

  Arena arena{Map()};
  Registrations registrations;
  Staging staging{arena, nullptr};
  std::uint32_t count = 0;
  std::vector<unsigned char> memory = std::vector<unsigned char>(kArenaBytes, 7);
};

TEST_CASE("Staging: one operation after the other uses one block, whichever tensor it is of") {
  Fixture fixture;
  std::set<std::uint64_t> offsets;
  for (const std::uint64_t bytes : {60'000, 61'000, 60'500, 59'000, 61'440}) {
    const OperationEnd end = fixture.Begin(bytes);
    offsets.insert(end.staging_offset);
    fixture.staging.Finish(end, true);
  }
  CHECK(offsets.size() == 1);
}

TEST_CASE("Staging: the block that was given back last is taken first") {
  Fixture fixture;
  const OperationEnd first = fixture.Begin(5000);
  const OperationEnd second = fixture.Begin(5000);
  CHECK(first.staging_offset != second.staging_offset);
  fixture.staging.Finish(second, true);
  fixture.staging.Finish(first, true);
  CHECK(fixture.Begin(5000).staging_offset == first.staging_offset);
  CHECK(fixture.Begin(5000).staging_offset == second.staging_offset);
}

TEST_CASE("Staging: blocks of operations in flight never overlap, whatever their sizes") {
  Fixture fixture;
  std::vector<OperationEnd> flying;
  const auto end_all = [&] {
    for (const OperationEnd& end : flying) fixture.staging.Finish(end, true);
    flying.clear();
  };
  std::uint64_t seed = 1;
  for (int round = 0; round < 20; ++round) {
    std::vector<std::uint8_t> owners(kArenaBytes, 0);
    for (int i = 0; i < 40; ++i) {
      seed = seed * 6364136223846793005U + 1442695040888963407U;
      const std::uint64_t bytes = 1 + (seed >> 40) % (std::uint64_t{1} << (seed >> 33) % 15);
      flying.push_back(fixture.Begin(bytes));
      const auto begin = owners.begin() + static_cast<std::ptrdiff_t>(flying.back().staging_offset);
      const auto end = begin + static_cast<std::ptrdiff_t>(bytes);
      REQUIRE(std::all_of(begin, end, [](std::uint8_t owner) { return owner == 0; }));
      std::fill(begin, end, 1);
    }
    end_all();
  }
}

TEST_CASE("Staging: idle blocks make room for tensors of other sizes; those in flight do not") {
  Fixture fixture;
  const OperationEnd small = fixture.Begin(100'000);
  const OperationEnd large = fixture.Begin(500'000);
  OperationEnd end;
  Registration& huge = fixture.Tensor(700'000);
  const absl::Status refused = fixture.Place(huge, end);
  CHECK(absl::IsResourceExhausted(refused));
  CHECK_THAT(std::string(refused.message()), Catch::Matchers::Contains("tensor 't700000'"));
  fixture.staging.Finish(large, true);
  CHECK(fixture.Place(huge, end).ok());
  CHECK((end.staging_offset >= small.staging_offset + 100'000 ||
         end.staging_offset + 700'000 <= small.staging_offset));
}

}  // namespace
}  // namespace ringd::client
