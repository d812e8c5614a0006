#include "proto/shm/engine_slots.h"

#include <catch2/catch.hpp>
#include <cstddef>
#include <vector>

namespace ringd {
namespace {

TEST_CASE("SlotSet: others are those that are in both sets, without oneself") {
  SlotSet one{};
  SlotSet other{};
  const std::vector<std::size_t> slots = {0, 63, 64, 200, kMostEngines - 1};
  for (const std::size_t slot : slots) {
    CHECK_FALSE(one.Has(slot));
    one.Add(slot);
    CHECK(one.Has(slot));
  }
  CHECK_FALSE(SlotSet::HaveOthers(one, other, 1));
  other.Add(63);
  other.Add(100);
  CHECK(SlotSet::HaveOthers(one, other, 1));
  CHECK_FALSE(SlotSet::HaveOthers(one, other, 63));
  other.Add(kMostEngines - 1);
  std::vector<std::size_t> found;
  SlotSet::ForEachOther(one, other, 1, [&found](std::size_t slot) { found.push_back(slot); });
  CHECK(found == std::vector<std::size_t>{63, kMostEngines - 1});
  other.Remove(63);
  CHECK_FALSE(other.Has(63));
  CHECK(other.Has(100));
  found.clear();
  SlotSet::ForEachOther(one, other, kMostEngines - 1,
                        [&found](std::size_t slot) { found.push_back(slot); });
  CHECK(found.empty());
}

}  // namespace
}  // namespace ringd
