#include "daemon/execution/buffer_pool.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

namespace ringd {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST_CASE("BufferPool: steps that repeat allocate nothing after the first") {
  BufferPool pool;
  std::uint64_t after_first = 0;
  for (int step = 0; step < 10; ++step) {
    std::vector<PooledBuffer> loans;
    for (const std::size_t bytes : {100 * kMiB, 300 * kMiB, std::size_t{5000}, 40 * kMiB}) {
      loans.push_back(pool.Acquire(bytes));
      REQUIRE(loans.back().data() != nullptr);
    }
    loans.clear();
    if (step == 0) after_first = pool.allocated_bytes();
    CHECK(pool.allocated_bytes() == after_first);
  }
}

TEST_CASE("BufferPool: of sizes that grow for ever the old ones go") {
  BufferPool pool;
  std::size_t largest = 0;
  for (std::size_t bytes = kMiB; bytes <= 600 * kMiB; bytes += 2 * kMiB) {
    largest = bytes;
    REQUIRE(pool.Acquire(bytes).data() != nullptr);
  }
  CHECK(pool.held_bytes() <= 4 * (largest + 2 * kMiB));
  CHECK(pool.held_bytes() >= largest);
}

TEST_CASE("BufferPool: what was used last is kept") {
  BufferPool pool;
  const std::byte* const kept = pool.Acquire(10 * kMiB).data();
  for (std::size_t bytes = 30 * kMiB; bytes < 150 * kMiB; bytes += 2 * kMiB) {
    static_cast<void>(pool.Acquire(bytes));
    CHECK(pool.Acquire(10 * kMiB).data() == kept);
  }
  CHECK(pool.held_bytes() <= 4 * 162 * kMiB);
}

}  // namespace
}  // namespace ringd
