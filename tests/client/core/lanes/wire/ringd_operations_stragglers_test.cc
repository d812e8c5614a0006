// Operations that are still there when their place in the table is needed again.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/core/lanes/wire/ringd_operations.h"
#include "tests/client/core/lanes/wire/ringd_fixture.h"

namespace ringd::client {
namespace {

TEST_CASE("Operations: one whose slot is needed again is kept, whatever has become of it") {
  Fixture fixture;
  int mark = 0;
  const auto submit = [&](bool plain) {
    Submission record{};
    OperationEnd end;
    if (!plain) end.copy_from = end.copy_to = &mark;
    REQUIRE(fixture.operations.TrySubmit(record, end) == SubmitResult::kOk);
    Submission taken;
    REQUIRE(fixture.segment.submissions.TryPop(taken) == RingResult::kOk);
    return record.sequence;
  };
  const auto status = static_cast<std::int32_t>(absl::StatusCode::kAborted);
  const bool plain = GENERATE(true, false);
  const std::uint64_t well = submit(plain);
  const std::uint64_t ill = submit(plain);
  const std::uint64_t late = submit(plain);
  fixture.segment.Complete(well);
  fixture.segment.Complete(ill, status);
  std::vector<OperationEnd> ends;
  for (std::uint32_t i = 0; i < 2 * kCapacity; ++i) {
    const std::uint64_t other = submit(i % 2 == 0);
    fixture.segment.Complete(other);
    CHECK(fixture.operations.ConsumeSucceeded({&other, 1}, ends) == 1);
  }
  CHECK(fixture.operations.Test(well) == WaitResult::kDone);
  CHECK(fixture.operations.Test(ill) == WaitResult::kDone);
  CHECK(fixture.operations.Test(late) == WaitResult::kTimeout);
  fixture.segment.Complete(late);
  CHECK(fixture.operations.Wait(late, InTenSeconds()) == WaitResult::kDone);
  ends.clear();
  const std::vector<std::uint64_t> all{well, late, ill};
  CHECK(fixture.operations.ConsumeSucceeded(all, ends) == 2);
  CHECK(ends.size() == (plain ? 0 : 2));
  OperationOutcome outcome;
  OperationEnd end;
  REQUIRE(fixture.operations.Consume(ill, outcome, end));
  CHECK(outcome.status == status);
  for (const std::uint64_t gone : all) {
    CHECK(fixture.operations.Test(gone) == WaitResult::kUnknown);
  }
}

TEST_CASE("Operations: the pair of one in flight is known when its slot is needed again, too") {
  Fixture fixture;
  using Pairs = std::vector<std::uint32_t>;
  const auto submit = [&](std::uint32_t pair) {
    Submission record{};
    OperationEnd end;
    end.timeline_pair = record.timeline_pair = pair;
    REQUIRE(fixture.operations.TrySubmit(record, end) == SubmitResult::kOk);
    Submission taken;
    REQUIRE(fixture.segment.submissions.TryPop(taken) == RingResult::kOk);
    return record.sequence;
  };
  const auto pairs = [&] {
    Pairs found = fixture.operations.TimelinePairsOfUnfulfilled();
    std::sort(found.begin(), found.end());
    return found;
  };
  const std::uint64_t first = submit(7);
  const std::uint64_t second = submit(3);
  CHECK(pairs() == Pairs{3, 7});
  std::vector<OperationEnd> ends;
  for (std::uint32_t i = 0; i < 2 * kCapacity; ++i) {
    const std::uint64_t other = submit(kNoTimelinePair);
    fixture.segment.Complete(other);
    CHECK(fixture.operations.ConsumeSucceeded({&other, 1}, ends) == 1);
  }
  CHECK(pairs() == Pairs{3, 7});
  fixture.segment.Complete(first);
  CHECK(pairs() == Pairs{3});
  // Its pair has been released, for good.
  fixture.segment.Complete(second, static_cast<std::int32_t>(absl::StatusCode::kAborted));
  CHECK(pairs() == Pairs{3});
}

}  // namespace
}  // namespace ringd::client
