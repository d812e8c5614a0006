#include "daemon/jobs/tracing/trace_inquiries.h"

#include <catch2/catch.hpp>

#include "daemon/jobs/tracing/trace_gatherings.h"

namespace ringd {
namespace {

v1::TraceInquiry Inquiry(std::uint32_t number) {
  v1::TraceInquiry inquiry;
  inquiry.set_number(number);
  return inquiry;
}

TEST_CASE("TraceInquiries: come out in their order, each once, and of too many the first ones") {
  TraceInquiries inquiries;
  const Clock::time_point now = Clock::now();
  for (std::uint32_t i = 0; i < TraceInquiries::kMost + 5; ++i) inquiries.Add(Inquiry(i), now);
  for (std::uint32_t i = 0; i < TraceInquiries::kMost; ++i) {
    const auto next = inquiries.Next(now);
    REQUIRE(next.has_value());
    CHECK(next->number() == i);
  }
  CHECK(inquiries.empty());
  CHECK_FALSE(inquiries.Next(now).has_value());
}

TEST_CASE("TraceInquiries: one that nobody waits for any more is not answered") {
  TraceInquiries inquiries;
  const Clock::time_point now = Clock::now();
  inquiries.Add(Inquiry(1), now);
  inquiries.Add(Inquiry(2), now);
  inquiries.Add(Inquiry(3), now + TraceGatherings::kPatience);
  const auto next = inquiries.Next(now + TraceGatherings::kPatience);
  REQUIRE(next.has_value());
  CHECK(next->number() == 3);
  CHECK(inquiries.empty());
}

}  // namespace
}  // namespace ringd
