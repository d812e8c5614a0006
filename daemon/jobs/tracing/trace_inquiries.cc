#include "daemon/jobs/tracing/trace_inquiries.h"

#include <utility>

#include "daemon/jobs/tracing/trace_gatherings.h"

namespace ringd {

void TraceInquiries::Add(v1::TraceInquiry inquiry, Clock::time_point now) {
  if (waiting_.size() < kMost) waiting_.push_back({std::move(inquiry), now});
}

std::optional<v1::TraceInquiry> TraceInquiries::Next(Clock::time_point now) {
  while (!waiting_.empty()) {
    Waiting oldest = std::move(waiting_.front());
    waiting_.pop_front();
    // Who asked began to wait before the inquiry came here.
    if (now - oldest.since < TraceGatherings::kPatience) return std::move(oldest.inquiry);
  }
  return std::nullopt;
}

}  // namespace ringd
