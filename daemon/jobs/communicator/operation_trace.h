// What the engine notes of a communicator's operations, always: the times of their stages.
#ifndef RINGD_DAEMON_JOBS_COMMUNICATOR_OPERATION_TRACE_H_
#define RINGD_DAEMON_JOBS_COMMUNICATOR_OPERATION_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "backends/collective_request.h"
#include "daemon/sessions/session.h"
#include "proto/base/clock.h"
#include "proto/trace/trace_event.h"
#include "proto/trace/trace_ring.h"
#include "proto/types/ids.h"

namespace ringd {

// Nothing here allocates or locks, and hardly a call reads a clock: the times are known already.
//
// Thread safety: none; the progress thread owns it.
class OperationTrace {
 public:
  // Some hundred steps of a large network. Memory is used as it is written.
  static constexpr std::uint32_t kEvents = 32 * 1024;

  // Takes no memory before the first event: of a one-node job there is none, but of GPUs' tensors.
  OperationTrace() noexcept = default;
  OperationTrace(const OperationTrace&) = delete;
  OperationTrace& operator=(const OperationTrace&) = delete;

  // Notes nothing.
  void TurnOff() noexcept { off_ = true; }
  // Of a communicator besides that of all ranks: notes its operations among theirs, as of `part`.
  // `by_order`: by their numbers. `positions`: where its members stand among the job's members
  // here.
  // Requirement: `job` notes for itself, and outlives what is noted here.
  void NoteInto(OperationTrace& job, TracedPart part, bool by_order, std::vector<int> positions);
  // What is added to tensors' numbers, where ranks note tensors of other numbers themselves.
  void NumberTensorsFrom(std::uint32_t first) noexcept { first_tensor_ = first; }

  void OnSubmitted(int member, const CheckedSubmission& submission, Clock::time_point now);
  void OnReady(const Registration& tensor, Clock::time_point now);
  // Behind it OnCarries for each tensor of the bucket.
  void OnStarted(OperationId id, CollectiveKind kind, std::uint64_t bytes, Clock::time_point now);
  void OnCarries(OperationId id, const Registration& tensor, Clock::time_point now);
  // The backend has completed it well; what it says of it is another's id perhaps.
  void OnMoved(OperationId id, const Completion& completion);
  // It goes no further here; another operation will carry its tensors.
  void OnCancelled(OperationId id, Clock::time_point now);
  void OnCompleted(OperationId id, std::uint64_t bytes, Clock::time_point now);
  // The tensor ended without an operation.
  void OnFailed(const Registration& tensor, absl::StatusCode code, Clock::time_point now);

  // No ring: null.
  const TraceRingView& ring() const noexcept { return ring_; }

 private:
  struct Free {
    void operator()(void* memory) const noexcept { std::free(memory); }
  };

  void Write(TraceEvent event);
  void WriteOwn(const TraceEvent& event);
  void WriteOperation(TraceStage stage, OperationId id, Clock::time_point at,
                      std::uint64_t value = 0, std::uint16_t detail = 0,
                      std::uint32_t tensor = kNoTracedTensor);

  std::uint32_t NumberOf(const Registration& tensor) const noexcept;

  bool off_ = false;
  std::uint32_t first_tensor_ = 0;
  OperationTrace* job_ = nullptr;  // whose ring the events go to, if not to the own one
  TracedPart part_;
  bool by_order_ = false;
  std::vector<int> positions_;  // of the members, among those of the job, if `job_` is set
  std::unique_ptr<void, Free> memory_;
  TraceRingView ring_;
  TraceWriter writer_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_COMMUNICATOR_OPERATION_TRACE_H_
