#include "daemon/attach/session_places.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "daemon/config/config.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;

constexpr uid_t kOwnUser = 999;
constexpr uid_t kAlice = 1001;

struct Node {
  Node(std::uint64_t total, std::uint64_t per_user, bool shared)
      : places(SessionPlaces::LimitsFor(total, per_user, shared, kOwnUser)) {}

  // As many as there are for him; why there are no more is in `refusal`.
  std::size_t TakeAll(uid_t uid) {
    for (std::size_t count = 0;; ++count) {
      auto place = places.Take(uid);
      if (!place.ok()) {
        refusal = std::string(place.status().message());
        CHECK(place.status().code() == absl::StatusCode::kResourceExhausted);
        return count;
      }
      held.push_back(*std::move(place));
    }
  }

  SessionPlaces places;
  std::vector<std::shared_ptr<const void>> held;
  std::string refusal;
};

TEST_CASE("SessionPlaces: a user may have a quarter, and hears how many he has and which setting") {
  Node node(256, kAutoCount, true);
  CHECK(node.TakeAll(kAlice) == 64);
  CHECK_THAT(node.refusal, Contains("has 64 trainers") && Contains("(64, a quarter of") &&
                               Contains("max_sessions_per_user"));
  Node set(256, 100, true);
  CHECK(set.TakeAll(GENERATE(as<uid_t>{}, kAlice, 0, kOwnUser)) == 100);
  CHECK_THAT(set.refusal, Contains("(100; setting max_sessions_per_user)"));
}

TEST_CASE("SessionPlaces: whatever others take, root and a user who has none find room") {
  // Also where the setting lets one user take all that is not kept.
  const std::uint64_t per_user = GENERATE(as<std::uint64_t>{}, kAutoCount, 256);
  Node node(256, per_user, true);
  std::size_t taken = 0;
  for (uid_t uid = kAlice; uid < kAlice + 8; ++uid) taken += node.TakeAll(uid);
  CHECK_THAT(node.refusal, Contains("max_sessions") && Contains("kept for root"));
  CHECK(taken < 256);
  // Eight of the sixteen for whom something is kept are there.
  for (uid_t uid = 2000; uid < 2008; ++uid) CHECK(node.TakeAll(uid) == 4);
  CHECK(node.TakeAll(0) == 16);
  CHECK_THAT(node.refusal, Contains("has 16 trainers") && Contains("all 256 places"));
  CHECK(node.held.size() == 256);
}

TEST_CASE("SessionPlaces: root and ringd's own user take what is not kept for others") {
  Node node(256, kAutoCount, true);
  const uid_t uid = GENERATE(uid_t{0}, kOwnUser);
  CHECK(node.TakeAll(uid) >= 180);
  CHECK(node.TakeAll(kAlice) >= 4);
}

TEST_CASE("SessionPlaces: where nobody else is admitted nothing is kept for others") {
  Node root(256, kAutoCount, false);
  CHECK(root.TakeAll(0) == 256);
  Node own(256, kAutoCount, false);
  CHECK(own.TakeAll(kOwnUser) == 240);
  CHECK(own.TakeAll(0) == 16);
  Node two(2, kAutoCount, false);
  CHECK(two.TakeAll(kOwnUser) == 2);
}

TEST_CASE("SessionPlaces: a place is free again when its last holder lets go") {
  Node node(8, 2, true);
  CHECK(node.TakeAll(kAlice) == 2);
  const std::shared_ptr<const void> copy = node.held.back();
  node.held.clear();
  CHECK(node.TakeAll(kAlice) == 1);
}

TEST_CASE("SessionPlaces: other limits count from then on, and take no place away") {
  Node node(16, 8, false);
  CHECK(node.TakeAll(kAlice) == 8);
  node.places.SetLimits(SessionPlaces::LimitsFor(16, 10, false, kOwnUser));
  CHECK(node.TakeAll(kAlice) == 2);
  node.places.SetLimits(SessionPlaces::LimitsFor(4, 4, false, kOwnUser));
  CHECK(node.TakeAll(kAlice) == 0);
  CHECK(node.TakeAll(0) == 0);
  CHECK_THAT(node.refusal, Contains("all 4 places are taken"));
  node.held.resize(3);
  CHECK(node.TakeAll(0) == 1);
}

}  // namespace
}  // namespace ringd
