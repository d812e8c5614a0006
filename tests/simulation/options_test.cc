#include "tests/simulation/options.h"

#include <catch2/catch.hpp>

namespace ringd::simulation {
namespace {

TEST_CASE("Options: one seed is run in detail, several are not") {
  const auto one = ParseOptions({"--seed", "123", "--nodes", "7"});
  REQUIRE(one.has_value());
  CHECK(one->first == 123);
  CHECK(one->count == 1);
  CHECK(one->nodes == 7);
  CHECK(one->in_detail);

  const auto many = ParseOptions({"--seeds", "20", "--first", "5"});
  REQUIRE(many.has_value());
  CHECK(many->first == 5);
  CHECK(many->count == 20);
  CHECK(many->nodes == 0);
  CHECK_FALSE(many->in_detail);
}

TEST_CASE("Options: what can't be meant is refused") {
  const std::vector<std::string> arguments = GENERATE(values<std::vector<std::string>>({
      {},
      {"--seed"},
      {"--seed", ""},
      {"--seed", "12x"},
      {"--seed", "-1"},
      {"--seed", " 1"},
      {"--seed", "18446744073709551616"},
      {"--seed", "1", "--seed", "2"},
      {"--seed", "1", "--seeds", "2"},
      {"--seed", "1", "--first", "2"},
      {"--seeds", "0"},
      {"--seeds", "2", "--first", "18446744073709551615"},
      {"--first", "1"},
      {"--nodes", "3"},
      {"--seed", "1", "--nodes", "1"},
      {"--seed", "1", "--nodes", "65"},
      {"--seed", "1", "--ranks", "2"},
      {"--seed", "1", "extra"},
  }));
  CAPTURE(arguments);
  CHECK_FALSE(ParseOptions(arguments).has_value());
}

}  // namespace
}  // namespace ringd::simulation
