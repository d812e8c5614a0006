#include "daemon/jobs/coordinator/communicator_table.h"

#include <catch2/catch.hpp>

namespace ringd {
namespace {

constexpr std::chrono::seconds kPatience{5};

AskedCommunicator Asked(std::vector<int> ranks, const std::string& name = "c") {
  return {name, std::move(ranks)};
}

bool Waits(const std::variant<std::monostate, AskedCommunicator, RefusedCommunicator>& answer) {
  return std::holds_alternative<std::monostate>(answer);
}

}  // namespace

TEST_CASE("CommunicatorTable: one is made when all its ranks have asked alike") {
  CommunicatorTable table(4);
  const Clock::time_point now;
  CHECK(Waits(table.Ask(2, Asked({2, 0}), kPatience, now)));
  CHECK(table.anyone_waits());
  const auto made = table.Ask(0, Asked({2, 0}), kPatience, now);
  REQUIRE(std::holds_alternative<AskedCommunicator>(made));
  CHECK(std::get<AskedCommunicator>(made).ranks == std::vector<int>{2, 0});
  CHECK_FALSE(table.anyone_waits());
  CHECK(table.Made(std::get<AskedCommunicator>(made)) == 1);
  // Its name is taken for its ranks, and for no others.
  CHECK(std::holds_alternative<RefusedCommunicator>(table.Ask(2, Asked({2, 3}), kPatience, now)));
  CHECK(Waits(table.Ask(1, Asked({1, 3}), kPatience, now)));
  CHECK_FALSE(table.Drop(1, 2));
  CHECK_FALSE(table.Drop(1, 1));
  CHECK(table.Drop(1, 0));
  CHECK(Waits(table.Ask(2, Asked({2, 0}), kPatience, now)));
}

TEST_CASE("CommunicatorTable: ranks that disagree are refused together, with both lists") {
  CommunicatorTable table(4);
  const Clock::time_point now;
  CHECK(Waits(table.Ask(0, Asked({0, 1}), kPatience, now)));
  const auto answer = table.Ask(1, Asked({1, 0}), kPatience, now);
  REQUIRE(std::holds_alternative<RefusedCommunicator>(answer));
  const auto& refused = std::get<RefusedCommunicator>(answer);
  CHECK(refused.asked == std::vector<int>{0, 1});
  CHECK(refused.why.message() ==
        "communicator 'c': rank 0 says ranks 0, 1, rank 1 says ranks 1, 0: all must give the same "
        "ranks in the same order");
}

TEST_CASE("CommunicatorTable: ranks that would match differently are refused together") {
  CommunicatorTable table(4);
  const Clock::time_point now;
  AskedCommunicator ordered = Asked({0, 1});
  ordered.by_order = true;
  CHECK(Waits(table.Ask(0, ordered, kPatience, now)));
  const auto answer = table.Ask(1, Asked({0, 1}), kPatience, now);
  REQUIRE(std::holds_alternative<RefusedCommunicator>(answer));
  const auto& refused = std::get<RefusedCommunicator>(answer);
  CHECK(refused.asked == std::vector<int>{0, 1});
  CHECK(refused.why.message() ==
        "communicator 'c' (ranks 0, 1): rank 0 says that its operations are matched by order, rank "
        "1 says by name: all must say the same");
  CHECK_FALSE(table.anyone_waits());
}

TEST_CASE("CommunicatorTable: who waits too long, or for one who has left, hears who is missing") {
  CommunicatorTable table(4);
  const Clock::time_point now;
  CHECK(Waits(table.Ask(0, Asked({0, 1, 2}), kPatience, now)));
  CHECK(table.Expire(now + kPatience - std::chrono::milliseconds(1)).empty());
  const auto late = table.Expire(now + kPatience);
  REQUIRE(late.size() == 1);
  CHECK(late[0].asked == std::vector<int>{0});
  CHECK(late[0].why.message() ==
        "communicator 'c' (ranks 0, 1, 2) could not be made within 5 s: ranks 1, 2 have not asked "
        "for it");
  CHECK(Waits(table.Ask(0, Asked({0, 1}), kPatience, now)));
  const auto left = table.OnRankLeft(1).refused;
  REQUIRE(left.size() == 1);
  CHECK(left[0].why.message() ==
        "communicator 'c' (ranks 0, 1) can't be made: rank 1 has left the job (shutdown)");
  CHECK(std::holds_alternative<RefusedCommunicator>(table.Ask(0, Asked({0, 1}), kPatience, now)));
}

TEST_CASE(
    "CommunicatorTable: one ends when those of its ranks that have not left need it no more") {
  CommunicatorTable table(4);
  REQUIRE(table.Made(Asked({0, 1, 2})) == 1);
  REQUIRE(table.Made(Asked({2, 3}, "other")) == 2);
  CHECK(table.OnRankLeft(2).ended.empty());
  CHECK_FALSE(table.Drop(1, 0));
  CHECK(table.Drop(1, 1));
  CHECK(Waits(table.Ask(0, Asked({0, 1}), kPatience, Clock::time_point())));
  CHECK(table.OnRankLeft(3).ended == std::vector<std::uint32_t>{2});
  CHECK_FALSE(table.Drop(2, 3));
}

TEST_CASE("CommunicatorTable: what makes no sense is refused, and there are so many at most") {
  CommunicatorTable table(3000);
  const Clock::time_point now;
  for (const std::vector<int>& ranks :
       {std::vector<int>{0, 3000}, {0, -1}, {0, 0}, {1, 2}, std::vector<int>{}}) {
    CHECK(std::holds_alternative<RefusedCommunicator>(table.Ask(0, Asked(ranks), kPatience, now)));
  }
  for (std::size_t i = 0; i < CommunicatorTable::kMostCommunicators; ++i) {
    REQUIRE(Waits(table.Ask(0, Asked({0, 1}, std::to_string(i)), kPatience, now)));
  }
  const auto answer = table.Ask(0, Asked({0, 1}, "one more"), kPatience, now);
  REQUIRE(std::holds_alternative<RefusedCommunicator>(answer));
  CHECK(absl::IsResourceExhausted(std::get<RefusedCommunicator>(answer).why));
}

}  // namespace ringd
