#include "daemon/jobs/measuring/link_survey.h"

#include <catch2/catch.hpp>
#include <limits>

namespace ringd {
namespace {

using std::chrono::microseconds;

const std::vector<StreamId> kNodes = {StreamId(11), StreamId(22), StreamId(33)};

// Links from a node to the two others, the first as given.
v1::LinkReport ReportOf(std::uint32_t first, std::uint32_t second, double latency_us = 50,
                        double bytes_per_second = 1e8) {
  v1::LinkReport report;
  for (const std::uint32_t to : {first, second}) {
    v1::ProbedLink* link = report.add_links();
    link->set_node(to);
    link->set_latency_us(50);
    link->set_bytes_per_second(1e8);
  }
  report.mutable_links(0)->set_latency_us(latency_us);
  report.mutable_links(0)->set_bytes_per_second(bytes_per_second);
  return report;
}

}  // namespace

TEST_CASE("LinkSurvey: is complete when all nodes have reported") {
  LinkSurvey survey(kNodes);
  CHECK(survey.Add(StreamId(33), ReportOf(0, 1, 70, 2e8)).ok());
  CHECK(survey.Add(StreamId(11), ReportOf(2, 1)).ok());
  CHECK_FALSE(survey.complete());
  CHECK(survey.Add(StreamId(22), ReportOf(0, 2)).ok());
  CHECK(survey.complete());
  CHECK(survey.links().at(2, 0) == MeasuredLink{microseconds(70), 2e8});
  CHECK(survey.links().at(0, 2) == MeasuredLink{microseconds(50), 1e8});
}

TEST_CASE("LinkSurvey: reports that make no sense are refused") {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  LinkSurvey survey(kNodes);
  const auto refused = [&](const v1::LinkReport& report) {
    return absl::IsInvalidArgument(survey.Add(StreamId(11), report));
  };
  CHECK(refused({}));
  CHECK(refused(ReportOf(0, 1)));  // to itself
  CHECK(refused(ReportOf(1, 1)));
  CHECK(refused(ReportOf(1, 3)));
  CHECK(refused(ReportOf(1, 2, -1)));
  CHECK(refused(ReportOf(1, 2, 1e9)));
  CHECK(refused(ReportOf(1, 2, kNan)));
  CHECK(refused(ReportOf(1, 2, 50, 0)));
  CHECK(refused(ReportOf(1, 2, 50, kNan)));
  CHECK(refused(ReportOf(1, 2, 50, std::numeric_limits<double>::infinity())));
  CHECK(absl::IsInvalidArgument(survey.Add(StreamId(44), ReportOf(0, 1))));
  CHECK(survey.Add(StreamId(11), ReportOf(1, 2)).ok());
  CHECK(refused(ReportOf(1, 2)));  // a second time
}

TEST_CASE("LinkSurvey: passes on why a node could not measure") {
  LinkSurvey survey(kNodes);
  v1::LinkReport report;
  report.set_error("no backend");
  CHECK(survey.Add(StreamId(11), report) == absl::UnavailableError("no backend"));
}

}  // namespace ringd
