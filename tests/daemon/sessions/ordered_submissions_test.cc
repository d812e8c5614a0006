#include "daemon/sessions/ordered_submissions.h"

#include <catch2/catch.hpp>
#include <limits>

#include "proto/shm/ordered_operation.h"

namespace ringd {
namespace {

constexpr CommunicatorId kCommunicator(7);

Submission Submitted(const OrderedDescription& what, std::uint64_t count) {
  Submission record{};
  record.registration = kCommunicator.value();
  record.flags = kByOrder;
  record.description = what.ToWord();
  record.element_count = count;
  return record;
}

}  // namespace

TEST_CASE("OrderedSubmissions: each has the next number, and goes round the places") {
  OrderedSubmissions submissions;
  submissions.Open(kCommunicator, {0, 3});
  const Submission record = Submitted({}, 10);
  for (std::uint32_t n = 0; n < 2 * kOrderedPlaces; ++n) {
    const auto begun = submissions.Begin(record, {});
    REQUIRE(begun.ok());
    CHECK((*begun)->name == "operation " + std::to_string(n));
    CHECK((*begun)->tensor == n % kOrderedPlaces);
    CHECK((*begun)->bytes == 40);
    CHECK((*begun)->meta.shape == std::vector<std::int64_t>{10});
    submissions.Accept(**begun);
    submissions.End(*begun);
  }
  CHECK(submissions.CountOf(kCommunicator) == 2 * kOrderedPlaces);
}

TEST_CASE("OrderedSubmissions: those in flight at once do not share a description") {
  OrderedSubmissions submissions;
  submissions.Open(kCommunicator, {0, 3});
  const auto first = submissions.Begin(Submitted({}, 10), {});
  submissions.Accept(**first);
  const auto second = submissions.Begin(Submitted({}, 20), {});
  CHECK(*first != *second);
  CHECK((*first)->name == "operation 0");
  CHECK((*second)->name == "operation 1");
}

TEST_CASE("OrderedSubmissions: scales count where there are some, and where they mean something") {
  OrderedSubmissions submissions;
  submissions.Open(kCommunicator, {0, 3});
  constexpr OrderedScales kScales{0.5, 4.0};
  OrderedDescription what;
  const auto scales_of = [&] {
    const auto begun = submissions.Begin(Submitted(what, 10), kScales);
    REQUIRE(begun.ok());
    const OrderedScales scales{(*begun)->meta.prescale, (*begun)->meta.postscale};
    submissions.End(*begun);
    return scales;
  };
  what.is_scaled = true;
  CHECK(scales_of() == kScales);
  what.is_scaled = false;
  CHECK(scales_of() == OrderedScales{});
  what.is_scaled = true;
  what.kind = CollectiveKind::kBroadcast;
  CHECK(scales_of() == OrderedScales{});
}

TEST_CASE("OrderedSubmissions: what breaks the rules is refused") {
  OrderedSubmissions submissions;
  submissions.Open(kCommunicator, {0, 3});
  OrderedDescription what;
  Submission record = Submitted(what, 10);
  SECTION("a communicator that is not open") { record.registration = 8; }
  SECTION("one that has been closed") { submissions.Close(kCommunicator); }
  OrderedScales scales;
  SECTION("scales that are not finite") {
    what.is_scaled = true;
    record = Submitted(what, 10);
    scales.postscale = std::numeric_limits<double>::infinity();
  }
  SECTION("a kind that there is not") { record.description |= 0x7f; }
  SECTION("a type that there is not") { record.description |= 0xff00; }
  SECTION("an average of bool") {
    what.data_type = DataType::kBool;
    what.op = ReduceOp::kAverage;
    record = Submitted(what, 10);
  }
  SECTION("more bytes than can be counted") { record.element_count = UINT64_MAX / 2; }
  SECTION("a barrier with elements") {
    what.kind = CollectiveKind::kBarrier;
    record = Submitted(what, 10);
  }
  SECTION("a root that is no rank of it") {
    what.kind = CollectiveKind::kBroadcast;
    record = Submitted(what, 10);
    record.root_rank = 1;
  }
  CHECK_FALSE(submissions.Begin(record, scales).ok());
  CHECK(submissions.CountOf(kCommunicator) == 0);
}

}  // namespace ringd
