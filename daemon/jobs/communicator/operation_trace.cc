#include "daemon/jobs/communicator/operation_trace.h"

#include <chrono>
#include <utility>

namespace ringd {
namespace {

// When a trainer says that it has submitted counts if it can be true.
constexpr std::uint64_t kLongestAgo = std::chrono::nanoseconds(std::chrono::seconds(10)).count();

}  // namespace

void OperationTrace::NoteInto(OperationTrace& job, TracedPart part, bool by_order,
                              std::vector<int> positions) {
  job_ = &job;
  part_ = part;
  by_order_ = by_order;
  positions_ = std::move(positions);
}

std::uint32_t OperationTrace::NumberOf(const Registration& tensor) const noexcept {
  return by_order_ ? TracedOrdered(tensor.order) : tensor.tensor;
}

void OperationTrace::Write(TraceEvent event) {
  if (off_) return;
  event.channel = part_.WordOf(event.channel);
  event.tensor += event.tensor == kNoTracedTensor ? 0 : first_tensor_;
  (job_ == nullptr ? *this : *job_).WriteOwn(event);
}

void OperationTrace::WriteOwn(const TraceEvent& event) {
  if (memory_ == nullptr) {
    const std::size_t bytes = TraceRingBytes(kEvents);
    // Zeroed by the kernel page by page, as they are written.
    memory_.reset(std::calloc(1, bytes + kCacheLineBytes));
    if (memory_ == nullptr) return;
    std::size_t space = bytes + kCacheLineBytes;
    void* base = memory_.get();
    std::align(kCacheLineBytes, bytes, base, space);
    ring_ = ViewTraceRing(static_cast<std::byte*>(base), kEvents);
    writer_ = TraceWriter(ring_);
  }
  writer_.Write(event);
}

void OperationTrace::WriteOperation(TraceStage stage, OperationId id, Clock::time_point at,
                                    std::uint64_t value, std::uint16_t detail,
                                    std::uint32_t tensor) {
  TraceEvent event;
  event.at_ns = NanosOf(at);
  event.value = value;
  event.channel = id.channel;
  event.sequence = id.sequence;
  event.tensor = tensor;
  event.stage = stage;
  event.detail = detail;
  Write(event);
}

void OperationTrace::OnSubmitted(int member, const CheckedSubmission& submission,
                                 Clock::time_point now) {
  const std::uint64_t now_ns = NanosOf(now);
  const bool possible =
      submission.submitted_ns <= now_ns && now_ns - submission.submitted_ns < kLongestAgo;
  TraceEvent event;
  event.at_ns = possible ? submission.submitted_ns : now_ns;
  event.value = submission.registration->bytes;
  event.sequence = static_cast<std::uint32_t>(submission.sequence);
  event.tensor = NumberOf(*submission.registration);
  event.stage = TraceStage::kSubmitted;
  const int position = job_ == nullptr ? member : positions_[static_cast<std::size_t>(member)];
  event.member = static_cast<std::uint8_t>(position);
  Write(event);
}

void OperationTrace::OnReady(const Registration& tensor, Clock::time_point now) {
  TraceEvent event;
  event.at_ns = NanosOf(now);
  event.value = tensor.bytes;
  event.tensor = NumberOf(tensor);
  event.stage = TraceStage::kReady;
  Write(event);
}

void OperationTrace::OnStarted(OperationId id, CollectiveKind kind, std::uint64_t bytes,
                               Clock::time_point now) {
  WriteOperation(TraceStage::kStarted, id, now, bytes, static_cast<std::uint16_t>(kind));
}

void OperationTrace::OnCarries(OperationId id, const Registration& tensor, Clock::time_point now) {
  WriteOperation(TraceStage::kCarries, id, now, tensor.bytes, 0, NumberOf(tensor));
}

void OperationTrace::OnMoved(OperationId id, const Completion& completion) {
  const CollectiveTimes& times = completion.times;
  const auto note = [&](TraceStage stage, CollectiveTimes::TimePoint at) {
    if (at == CollectiveTimes::TimePoint()) return;
    WriteOperation(stage, id, at, 0, static_cast<std::uint16_t>(completion.algorithm));
  };
  note(TraceStage::kPosted, times.posted);
  note(TraceStage::kFirstSent, times.first_sent);
  note(TraceStage::kLastSent, times.last_sent);
  note(TraceStage::kFirstReceived, times.first_received);
  note(TraceStage::kLastReceived, times.last_received);
  note(TraceStage::kMoved, times.finished);
}

void OperationTrace::OnCancelled(OperationId id, Clock::time_point now) {
  WriteOperation(TraceStage::kCancelled, id, now);
}

void OperationTrace::OnCompleted(OperationId id, std::uint64_t bytes, Clock::time_point now) {
  WriteOperation(TraceStage::kCompleted, id, now, bytes);
}

void OperationTrace::OnFailed(const Registration& tensor, absl::StatusCode code,
                              Clock::time_point now) {
  TraceEvent event;
  event.at_ns = NanosOf(now);
  event.tensor = NumberOf(tensor);
  event.stage = TraceStage::kFailed;
  event.detail = static_cast<std::uint16_t>(code);
  Write(event);
}

}  // namespace ringd
