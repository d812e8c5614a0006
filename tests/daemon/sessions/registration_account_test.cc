#include "daemon/sessions/registration_account.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>

namespace ringd {
namespace {

using Catch::Matchers::Contains;

UserCount Count(UserAccountSegment& segment, std::size_t slot) {
  return {segment, slot, &UserAccountSlot::registration_bytes};
}

TEST_CASE("RegistrationAccount: what a user's other engines have taken counts") {
  const auto segment = std::make_unique<UserAccountSegment>();
  RegistrationAccounts here(100, Count(*segment, 1));
  RegistrationAccounts there(100, Count(*segment, 2));
  const auto account = here.Of(1000);
  RegistrationBytes of_here(account);
  auto of_there = std::make_unique<RegistrationBytes>(there.Of(1000));
  REQUIRE(of_here.Take(60).ok());
  REQUIRE(of_there->Take(30).ok());
  CHECK(account->used() == 90);

  const absl::Status refused = of_here.Take(11);
  CHECK(absl::IsResourceExhausted(refused));
  CHECK_THAT(std::string(refused.message()),
             Contains("uid 1000 would take 101 bytes") && Contains("may have 100"));
  CHECK(account->used() == 90);  // nothing was taken
  CHECK(absl::IsResourceExhausted(of_here.Take(101)));
  REQUIRE(of_here.Take(10).ok());

  SECTION("what is given back is there again") { of_here.GiveBack(20); }
  SECTION("so is what goes") { of_there.reset(); }
  SECTION("and what an engine had that the supervisor has cleared") {
    segment->slots[2].registration_bytes = 0;
    CHECK(of_here.Take(20).ok());
    segment->slots[2].registration_bytes = 30;
    of_here.GiveBack(40);
  }
  SECTION("or the limit grows") { here.SetLimit(120); }
  CHECK(of_here.Take(20).ok());
}

TEST_CASE("RegistrationAccount: without other engines users have accounts of their own") {
  RegistrationAccounts accounts(100);
  RegistrationBytes one(accounts.Of(1000));
  RegistrationBytes other(accounts.Of(2000));
  CHECK(one.Take(100).ok());
  CHECK(other.Take(100).ok());
  CHECK(absl::IsResourceExhausted(one.Take(1)));
  CHECK(accounts.Of(1000) == one.account());
}

}  // namespace
}  // namespace ringd
