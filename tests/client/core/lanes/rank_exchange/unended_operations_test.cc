#include "client/core/lanes/rank_exchange/unended_operations.h"

#include <catch2/catch.hpp>
#include <optional>

#include "tests/client/core/lanes/rank_exchange/rank_exchange_job.h"

namespace ringd::client {
namespace {

constexpr Clock::time_point kAtOnce = Clock::time_point::min();

// A rank whose operation is under way: it does not decide alone, and nobody drives the other node.
struct Stranded {
  Stranded()
      : rank(job[1]),
        tensor(rank.Register(Reduction("x", DataType::kFloat32, ReduceOp::kSum, 1))),
        unended(*rank.operations, rank.state,
                [this](const RankExchangeStay& stay,
                       ringd_operation* operation) -> std::optional<absl::Status> {
                  ++asked;
                  CHECK(stay.tensor == &tensor);
                  *operation = 7;
                  return answer;
                }) {
    RankExchangeStay stay;
    REQUIRE(rank.operations->Carry(tensor, &value, &value, stay) == RankExchangeEnd::kUnderWay);
    operation = unended.Keep(stay);
  }

  RankExchangeJob job{2};
  ExchangingRank& rank;
  Registration& tensor;
  std::optional<absl::Status> answer = absl::OkStatus();
  int asked = 0;
  UnendedOperations unended;
  float value = 1;
  ringd_operation operation = 0;
};

TEST_CASE("UnendedOperations: what is given up is at ringd before the tensor's next submission") {
  Stranded stranded;
  CHECK(absl::IsDeadlineExceeded(stranded.unended.Settle(stranded.tensor, kAtOnce)));
  CHECK(absl::IsDeadlineExceeded(
      stranded.unended.Settle(stranded.tensor, Clock::now() + std::chrono::milliseconds(10))));
  CHECK(stranded.asked == 0);
  // Others go on.
  Registration& other =
      stranded.rank.Register(Reduction("y", DataType::kFloat32, ReduceOp::kSum, 1), 1);
  CHECK(stranded.unended.Settle(other, kAtOnce).ok());

  const DrivingRingd driving(stranded.job.links[0]);
  CHECK(stranded.unended.Settle(stranded.tensor, InTenSeconds()).ok());
  CHECK(stranded.asked == 1);
  const UnendedOperations::Found found = stranded.unended.Look(stranded.operation);
  CHECK(found.where == UnendedOperations::Where::kAtRingd);
  CHECK(found.operation == 7);
  CHECK(stranded.unended.Settle(stranded.tensor, kAtOnce).ok());
  CHECK(stranded.asked == 1);
}

TEST_CASE("UnendedOperations: without room at ringd it is tried again, until there is") {
  Stranded stranded;
  const DrivingRingd driving(stranded.job.links[0]);
  stranded.answer.reset();
  const Clock::time_point soon = Clock::now() + std::chrono::seconds(2);
  CHECK(absl::IsDeadlineExceeded(stranded.unended.Settle(stranded.tensor, soon)));
  CHECK(stranded.asked > 1);
  CHECK(stranded.unended.Look(stranded.operation).where == UnendedOperations::Where::kUnderWay);
  stranded.answer = absl::OkStatus();
  CHECK(stranded.unended.Settle(stranded.tensor, kAtOnce).ok());
}

TEST_CASE("UnendedOperations: what ringd refuses ends with its words, also for want of memory") {
  Stranded stranded;
  const DrivingRingd driving(stranded.job.links[0]);
  stranded.answer = absl::ResourceExhaustedError("the arena is full");
  const UnendedOperations::Found found = stranded.unended.Await(stranded.operation, InTenSeconds());
  CHECK(found.where == UnendedOperations::Where::kEnded);
  CHECK(found.status.message() == "the arena is full");
  CHECK(stranded.asked == 1);
  // Its count stands for the next, which does not try the exchange.
  CHECK_FALSE(stranded.rank.operations->Offers(stranded.tensor));
}

TEST_CASE("UnendedOperations: the end of the job ends them") {
  Stranded stranded;
  stranded.rank.state.Fail("rank 0 has died");
  CHECK(stranded.unended.Settle(stranded.tensor, InTenSeconds()).ok());
  CHECK(stranded.asked == 0);
  CHECK(stranded.unended.Look(stranded.operation).where == UnendedOperations::Where::kEnded);
}

}  // namespace
}  // namespace ringd::client
