#include "daemon/jobs/measuring/trial_survey.h"

#include <catch2/catch.hpp>
#include <vector>

namespace ringd {
namespace {

using std::chrono::microseconds;

const std::vector<StreamId> kNodes = {StreamId(11), StreamId(22), StreamId(33)};

// Of the first `sizes` sizes, all alike.
v1::TrialReport ReportOf(double flat_us, double doubling_us, std::size_t sizes = 2) {
  v1::TrialReport report;
  for (std::size_t size = 0; size < sizes; ++size) {
    v1::AllReduceTimes* times = report.add_times();
    times->set_bytes(kTriedBytes[size]);
    times->set_flat_us(flat_us);
    times->set_doubling_us(doubling_us);
  }
  return report;
}

}  // namespace

TEST_CASE("TrialSurvey: when all nodes have reported their medians speak") {
  TrialSurvey survey(kNodes);
  CHECK(survey.Add(StreamId(33), ReportOf(90, 150)).ok());
  CHECK(survey.Add(StreamId(11), ReportOf(100, 50'000)).ok());
  CHECK_FALSE(survey.complete());
  CHECK(survey.Add(StreamId(22), ReportOf(95, 180)).ok());
  REQUIRE(survey.complete());
  CHECK(survey.Times() == std::vector<AllReduceTimes>{{64, microseconds(95), microseconds(180)},
                                                      {1024, microseconds(95), microseconds(180)}});
}

TEST_CASE("TrialSurvey: nodes may have decided on nothing") {
  TrialSurvey survey(kNodes);
  for (const StreamId node : kNodes) CHECK(survey.Add(node, {}).ok());
  REQUIRE(survey.complete());
  CHECK(survey.Times().empty());
}

TEST_CASE("TrialSurvey: reports that make no sense are refused") {
  TrialSurvey survey(kNodes);
  REQUIRE(survey.Add(StreamId(22), ReportOf(95, 180)).ok());
  const auto refused = [&](StreamId node, const v1::TrialReport& report) {
    return absl::IsInvalidArgument(survey.Add(node, report));
  };
  CHECK(refused(StreamId(11), ReportOf(95, 0)));
  CHECK(refused(StreamId(11), ReportOf(95, 180, 1)));  // the other node has two sizes
  CHECK(refused(StreamId(11), ReportOf(95, 180, 3)));
  CHECK(refused(StreamId(22), ReportOf(95, 180)));  // a second time
  CHECK(refused(StreamId(44), ReportOf(95, 180)));
  CHECK(survey.Add(StreamId(11), ReportOf(95, 180)).ok());
}

TEST_CASE("TrialSurvey: passes on why a node could not try") {
  TrialSurvey survey(kNodes);
  v1::TrialReport report;
  report.set_error("no backend");
  CHECK(survey.Add(StreamId(11), report) == absl::UnavailableError("no backend"));
}

}  // namespace ringd
