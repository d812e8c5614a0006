#include "daemon/rpc/user_calls.h"

#include <catch2/catch.hpp>
#include <vector>

namespace ringd {
namespace {

TEST_CASE("UserCalls: so many calls at once, and a place that was given back is free") {
  UserCalls calls({.calls = 3});
  std::vector<UserCalls::Place> taken;
  for (int i = 0; i < 3; ++i) taken.push_back(calls.TakeCall());
  for (const auto& place : taken) CHECK(place != nullptr);
  CHECK(calls.TakeCall() == nullptr);
  taken.pop_back();
  CHECK(calls.TakeCall() != nullptr);
}

TEST_CASE("UserCalls: replies are bounded by their bytes, and one is always possible") {
  UserCalls calls({.reply_bytes = 100});
  UserCalls::Place first = calls.TakeReply(60);
  CHECK(first != nullptr);
  CHECK(calls.TakeReply(41) == nullptr);
  CHECK(calls.TakeReply(40) != nullptr);
  first.reset();
  CHECK(calls.TakeReply(1000) != nullptr);
}

TEST_CASE("UserCalls: places may outlive it") {
  UserCalls::Place place;
  {
    UserCalls calls({});
    place = calls.TakeCall();
  }
  CHECK(place != nullptr);
}

}  // namespace
}  // namespace ringd
