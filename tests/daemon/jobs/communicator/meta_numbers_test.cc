#include "daemon/jobs/communicator/meta_numbers.h"

#include <catch2/catch.hpp>

namespace ringd {
namespace {

TensorMeta Shaped(std::int64_t extent) {
  TensorMeta meta;
  meta.shape = {extent};
  return meta;
}

TEST_CASE(
    "MetaNumbers: a meta keeps its number while anybody holds it, and gets another afterwards") {
  MetaNumbers numbers;
  const std::string key = MetaKey(Shaped(1));
  const auto first = numbers.Hold(key, Shaped(1));
  REQUIRE(first.ok());
  CHECK(first->added);
  const auto second = numbers.Hold(key, Shaped(1));
  REQUIRE(second.ok());
  CHECK_FALSE(second->added);
  CHECK(second->id == first->id);
  CHECK_FALSE(numbers.Release(first->id));
  CHECK(numbers.Find(first->id) != nullptr);
  CHECK(numbers.Release(first->id));
  CHECK(numbers.Find(first->id) == nullptr);
  CHECK(numbers.count() == 0);
  const auto later = numbers.Hold(key, Shaped(1));
  REQUIRE(later.ok());
  CHECK(later->id != first->id);
  CHECK(numbers.count() == 1);
}

}  // namespace
}  // namespace ringd
