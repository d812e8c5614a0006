#include "proto/shm/tensor_numbers.h"

#include <catch2/catch.hpp>
#include <string>

namespace ringd {
namespace {

TEST_CASE("TensorNumbers: a name keeps its number, and other names have others") {
  TensorNumbers numbers(10);
  CHECK(numbers.Hold("a") == 0);
  CHECK(numbers.Hold("bc") == 1);
  CHECK(numbers.Hold("a") == 0);
  CHECK(numbers.count() == 2);
  CHECK(numbers.name_bytes() == 3);
  CHECK(numbers.NameOf(1) == "bc");
  CHECK_FALSE(numbers.NameOf(2).has_value());
  CHECK(numbers.Find("bc") == 1);
  CHECK_FALSE(numbers.Find("d").has_value());
}

TEST_CASE("TensorNumbers: a number is another name's when all are taken and nobody holds it") {
  TensorNumbers numbers(3);
  for (const char* name : {"a", "b", "c", "a"}) REQUIRE(numbers.Hold(name).has_value());
  CHECK_FALSE(numbers.Hold("d").has_value());
  numbers.Release(0);  // of two
  CHECK_FALSE(numbers.Hold("d").has_value());
  numbers.Release(2);
  numbers.Release(0);
  CHECK(numbers.Find("c") == 2);  // until it is needed
  CHECK(numbers.Hold("c") == 2);
  CHECK(numbers.Hold("long d") == 0);
  CHECK_FALSE(numbers.Find("a").has_value());
  CHECK(numbers.NameOf(0) == "long d");
  CHECK(numbers.name_bytes() == 8);
  CHECK_FALSE(numbers.Hold("a").has_value());
  numbers.Release(2);
  numbers.Release(1);
  // The one that nobody has held for longest comes first.
  CHECK(numbers.Hold("a") == 2);
  CHECK(numbers.Hold("e") == 1);
}

TEST_CASE("TensorNumbers: names without end go through few numbers") {
  TensorNumbers numbers(8);
  const std::uint32_t kept = numbers.Hold("kept").value();
  for (int i = 0; i < 100'000; ++i) {
    const std::optional<std::uint32_t> number = numbers.Hold(std::to_string(i));
    REQUIRE(number.has_value());
    numbers.Release(*number);
  }
  CHECK(numbers.Hold("kept") == kept);
  CHECK(numbers.count() == 8);
  CHECK(numbers.name_bytes() < 64);
}

}  // namespace
}  // namespace ringd
