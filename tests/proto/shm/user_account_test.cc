#include "proto/shm/user_account.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "proto/base/memfd.h"
#include "proto/base/memory_mapping.h"

namespace ringd {
namespace {

constexpr auto kBytes = &UserAccountSlot::registration_bytes;
constexpr auto kCommunicators = &UserAccountSlot::communicators;

TEST_CASE("UserCount: each engine's part counts, and the two counts are apart") {
  const auto segment = std::make_unique<UserAccountSegment>();
  UserCount first(*segment, 0, kBytes);
  UserCount last(*segment, kMostEngines - 1, kBytes);
  UserCount communicators(*segment, 0, kCommunicators);
  first.Add(10);
  last.Add(5);
  communicators.Set(3);
  CHECK(first.Sum() == 15);
  CHECK(last.Sum() == 15);
  CHECK(communicators.Sum() == 3);
  first.Subtract(4);
  CHECK(last.Sum() == 11);
  communicators.Set(1);
  CHECK(communicators.Sum() == 1);
}

TEST_CASE("UserCount: whatever others have written the sum does not turn over") {
  const auto segment = std::make_unique<UserAccountSegment>();
  UserCount count(*segment, 0, kBytes);
  count.Add(10);
  segment->slots[1].registration_bytes = std::numeric_limits<std::uint64_t>::max() - 3;
  segment->slots[2].registration_bytes = 7;
  CHECK(count.Sum() == std::numeric_limits<std::uint64_t>::max());
}

TEST_CASE("UserCount: processes that take at once never have more than there is") {
  constexpr int kProcesses = 3;
  constexpr std::uint64_t kLimit = 2;
  const auto memfd = CreateSealedMemfd("account", sizeof(UserAccountSegment));
  REQUIRE(memfd.ok());
  const auto mapping = MemoryMapping::MapSealed(memfd->get(), sizeof(UserAccountSegment));
  REQUIRE(mapping.ok());
  auto& segment = *reinterpret_cast<UserAccountSegment*>(mapping->data());
  std::vector<pid_t> children;
  for (std::size_t slot = 0; slot < kProcesses; ++slot) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child > 0) {
      children.push_back(child);
      continue;
    }
    // Who holds one of two counts as such in the other count, which nobody may see exceed them.
    UserCount count(segment, slot, kBytes);
    UserCount holders(segment, slot, kCommunicators);
    bool exceeded = false;
    for (int turn = 0; turn < 50'000; ++turn) {
      count.Add(1);
      if (count.Sum() <= kLimit) {
        holders.Set(1);
        exceeded = exceeded || holders.Sum() > kLimit;
        holders.Set(0);
      }
      count.Subtract(1);
    }
    ::_exit(exceeded ? 1 : 0);
  }
  for (const pid_t child : children) {
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  CHECK(UserCount(segment, 0, kBytes).Sum() == 0);
}

}  // namespace
}  // namespace ringd
