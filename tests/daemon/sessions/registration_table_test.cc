#include "daemon/sessions/registration_table.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "proto/shm/submission.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;

Registration Described(std::uint32_t tensor, std::uint32_t meta) {
  Registration registration;
  registration.name = "t" + std::to_string(tensor);
  registration.tensor = tensor;
  registration.meta_id = meta;
  return registration;
}

TEST_CASE("RegistrationTable: equal descriptions share a number, others get the next") {
  RegistrationTable table;
  CHECK(table.Add(Described(0, 0)) == 0);
  CHECK(table.Add(Described(0, 1)) == 1);
  CHECK(table.Add(Described(0, 0)) == 0);
  CHECK(table.count() == 2);
  CHECK(table.Find(1)->meta_id == 1);
  CHECK(table.Find(2) == nullptr);
  CHECK(table.Find(kPingRegistration) == nullptr);
}

TEST_CASE("RegistrationTable: one in flight is not removed, and the words name it") {
  RegistrationTable table;
  const std::uint32_t number = table.Add(Described(7, 0));
  table.Begin(number);
  table.Begin(number);
  table.End(number);
  const auto refused = table.Remove(number);
  CHECK(refused.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(refused.status().message()),
             Contains("registration 0 (tensor 't7')") && Contains("1 of its submissions"));
  CHECK(table.Find(number) != nullptr);
  table.End(number);
  CHECK(table.Remove(number).ok());
  CHECK(table.Find(number) == nullptr);
  const auto again = table.Remove(number);
  CHECK(again.status().code() == absl::StatusCode::kNotFound);
  CHECK_THAT(std::string(again.status().message()), Contains("registration 0"));
}

TEST_CASE(
    "RegistrationTable: what is removed and described anew for ever takes one place, and no number "
    "twice soon") {
  RegistrationTable table;
  std::set<std::uint32_t> seen;
  for (std::uint32_t i = 0; i < 65'534; ++i) {
    const std::uint32_t number = table.Add(Described(0, i));
    REQUIRE(seen.insert(number).second);
    REQUIRE(number != kPingRegistration);
    REQUIRE((number & 0xffff) == 0);
    REQUIRE(table.Remove(number).ok());
  }
  CHECK(table.count() == 0);
}

}  // namespace
}  // namespace ringd
