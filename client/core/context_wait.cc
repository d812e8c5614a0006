// How a context's operations end, and pings.
#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/core/context.h"

namespace ringd::client {
namespace {

constexpr std::chrono::seconds kMismatchDeadline{5};

Clock::time_point WaitDeadline(std::int64_t timeout_ms) {
  // Beyond this, adding would leave the clock's range; nobody waits for years.
  constexpr std::int64_t kForeverMs = std::int64_t{10} * 365 * 24 * 3600 * 1000;
  if (timeout_ms < 0 || timeout_ms > kForeverMs) return Clock::time_point::max();
  return Clock::now() + std::chrono::milliseconds(timeout_ms);
}

// What is left of a wait, or -1: no limit.
std::int64_t MillisecondsUntil(Clock::time_point deadline) {
  if (deadline == Clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  return std::max<std::int64_t>(left.count(), 0);
}

absl::Status StillInFlight(ringd_operation operation, std::int64_t timeout_ms) {
  return absl::DeadlineExceededError(
      absl::StrCat("operation ", operation, " is still in flight after ", timeout_ms, " ms"));
}

absl::Status NoSuchOperation(ringd_operation operation) {
  return absl::NotFoundError(absl::StrCat("operation ", operation, " does not exist (any more)"));
}

}  // namespace

absl::Status Context::Ping(std::int64_t timeout_ms) {
  if (alone_) return state_.status();
  const Clock::time_point deadline = WaitDeadline(timeout_ms);
  // First one that is late: a ringd that does not answer gets no more of them.
  if (const std::optional<std::uint64_t> late = TakeLatePing(); late.has_value()) {
    if (absl::Status status = AwaitPing(*late, deadline, timeout_ms); !status.ok()) return status;
  }
  Submission record{};
  record.registration = kPingRegistration;
  switch (ringd_operations_.TrySubmit(record, {})) {
    case SubmitResult::kOk:
      break;
    case SubmitResult::kFull:
      return absl::ResourceExhaustedError("the submission ring is full");
    case SubmitResult::kEnded:
      return state_.status();
  }
  return AwaitPing(record.sequence, deadline, timeout_ms);
}

std::optional<std::uint64_t> Context::TakeLatePing() {
  MutexLock lock(pings_mutex_);
  if (late_pings_.empty()) return std::nullopt;
  const std::uint64_t late = late_pings_.back();
  late_pings_.pop_back();
  return late;
}

absl::Status Context::AwaitPing(std::uint64_t sequence, Clock::time_point deadline,
                                std::int64_t timeout_ms) {
  if (ringd_operations_.Wait(sequence, deadline) == WaitResult::kTimeout) {
    // The answer may still come: the operation stays in flight.
    {
      MutexLock lock(pings_mutex_);
      late_pings_.push_back(sequence);
    }
    return absl::DeadlineExceededError(
        absl::StrCat(RingdName(), " has not answered within ", timeout_ms, " ms"));
  }
  OperationOutcome outcome;
  OperationEnd end;
  static_cast<void>(ringd_operations_.Consume(sequence, outcome, end));
  return outcome.completed ? absl::OkStatus() : state_.status();
}

absl::Status Context::Test(ringd_operation operation, bool& done) {
  if (operation == RINGD_DONE) {
    done = true;
    return absl::OkStatus();
  }
  if (IsUnended(operation)) {
    const UnendedOperations::Found found = unended_operations_->Look(operation);
    if (found.where == UnendedOperations::Where::kNowhere) return NoSuchOperation(operation);
    if (found.where == UnendedOperations::Where::kAtRingd) return Test(found.operation, done);
    done = found.where == UnendedOperations::Where::kEnded;
    return absl::OkStatus();
  }
  OperationQueue* const queue = QueueOf(operation);
  const WaitResult result = operation == 0 || queue == nullptr ? WaitResult::kUnknown
                                                               : queue->Test(SequenceOf(operation));
  if (result == WaitResult::kUnknown) return NoSuchOperation(operation);
  done = result != WaitResult::kTimeout;
  return absl::OkStatus();
}

absl::Status Context::Wait(ringd_operation operation, std::int64_t timeout_ms) {
  if (operation == RINGD_DONE) return absl::OkStatus();
  if (IsUnended(operation)) return WaitForUnended(operation, timeout_ms);
  const Clock::time_point deadline = WaitDeadline(timeout_ms);
  OperationQueue* const queue = QueueOf(operation);
  const WaitResult result = operation == 0 || queue == nullptr
                                ? WaitResult::kUnknown
                                : queue->WaitAndTake(SequenceOf(operation), deadline);
  if (result == WaitResult::kTaken) return absl::OkStatus();
  if (result == WaitResult::kTimeout) return StillInFlight(operation, timeout_ms);
  return result == WaitResult::kUnknown ? NoSuchOperation(operation) : Conclude(*queue, operation);
}

absl::Status Context::WaitForUnended(ringd_operation operation, std::int64_t timeout_ms) {
  const Clock::time_point deadline = WaitDeadline(timeout_ms);
  const UnendedOperations::Found found = unended_operations_->Await(operation, deadline);
  switch (found.where) {
    case UnendedOperations::Where::kNowhere:
      return NoSuchOperation(operation);
    case UnendedOperations::Where::kUnderWay:
      return StillInFlight(operation, timeout_ms);
    case UnendedOperations::Where::kEnded:
      unended_operations_->Forget(operation);
      return found.status;
    case UnendedOperations::Where::kAtRingd:
      break;
  }
  const absl::Status status = Wait(found.operation, MillisecondsUntil(deadline));
  if (absl::IsDeadlineExceeded(status)) return StillInFlight(operation, timeout_ms);
  unended_operations_->Forget(operation);
  return status;
}

absl::Status Context::WaitAll(std::span<ringd_operation> awaited, std::int64_t timeout_ms) {
  const Clock::time_point deadline = WaitDeadline(timeout_ms);
  const KeptWaitLists::Loan loan(wait_lists_);
  WaitLists& lists = *loan;
  std::vector<ringd_operation*>& open = lists.open;
  std::vector<std::uint64_t>& sequences = lists.sequences;
  std::vector<ringd_operation*>& failed = lists.failed;
  for (ringd_operation& operation : awaited) {
    if (operation == RINGD_DONE) continue;
    open.push_back(&operation);
    sequences.push_back(SequenceOf(operation));
  }
  std::size_t next = 0;
  absl::Status finished;
  // Those of one communicator that follow each other are taken out together.
  std::size_t run_end = 0;
  OperationQueue* queue = nullptr;
  const auto begin_run = [&] {
    if (next < run_end) return;
    queue = QueueOf(*open[next]);
    run_end = next + 1;
    while (run_end < open.size() && QueueOf(*open[run_end]) == queue) ++run_end;
  };
  const auto conclude_succeeded = [&] {
    lists.ends.clear();
    const std::size_t count =
        queue->ConsumeSucceeded(std::span(sequences).subspan(next, run_end - next), lists.ends);
    if (absl::Status status = Finish(lists.ends); finished.ok()) finished = status;
    for (const std::size_t end = next + count; next < end; ++next) *open[next] = RINGD_DONE;
    return count;
  };
  while (next < open.size()) {
    const ringd_operation first = *open[next];
    if (IsUnended(first)) {
      // One at a time: there are few, and they are waited for next.
      const UnendedOperations::Where where = AwaitUnended(*open[next], deadline);
      if (where == UnendedOperations::Where::kUnderWay) return StillInFlight(first, timeout_ms);
      if (where == UnendedOperations::Where::kAtRingd) {
        sequences[next] = SequenceOf(*open[next]);
        continue;
      }
      if (*open[next] != RINGD_DONE) failed.push_back(open[next]);
      ++next;
      continue;
    }
    begin_run();
    const WaitResult result = first == 0 || queue == nullptr
                                  ? WaitResult::kUnknown
                                  : queue->WaitAndTake(sequences[next], deadline);
    if (result == WaitResult::kTaken) {
      *open[next++] = RINGD_DONE;
      continue;
    }
    if (result == WaitResult::kTimeout) {
      return absl::DeadlineExceededError(
          absl::StrCat("operation ", first, ", and perhaps some of the ", open.size() - next - 1,
                       " after it, is still in flight after ", timeout_ms, " ms"));
    }
    if (result == WaitResult::kDone && conclude_succeeded() > 0) continue;
    // A failure waits for the others: until all have ended the caller may be told to call again.
    failed.push_back(open[next++]);
  }
  const absl::Status status = ConcludeFailed(failed);
  return finished.ok() ? status : finished;
}

UnendedOperations::Where Context::AwaitUnended(ringd_operation& operation,
                                               Clock::time_point deadline) {
  const UnendedOperations::Found found = unended_operations_->Await(operation, deadline);
  if (found.where == UnendedOperations::Where::kAtRingd) {
    unended_operations_->Forget(operation);
    operation = found.operation;
  } else if (found.where == UnendedOperations::Where::kEnded && found.status.ok()) {
    operation = RINGD_DONE;
  }
  return found.where;
}

absl::Status Context::ConcludeFailed(std::span<ringd_operation* const> failed) {
  absl::Status status;
  for (ringd_operation* operation : failed) {
    const absl::Status failure = Wait(*operation, 0);
    // One that has ended well stands here if another thread was just copying its result out.
    *operation = failure.ok() ? RINGD_DONE : 0;
    if (status.ok()) status = failure;
  }
  return status;
}

absl::Status Context::Conclude(OperationQueue& queue, ringd_operation operation) {
  OperationOutcome outcome;
  OperationEnd end;
  // Before it is taken out, so that ReleaseStreams finds it here or there. A call of the driver may
  // be held up as long as the caller's streams are, who may let them go only when it hears of this.
  const bool is_left = &queue == &ringd_operations_ && LeaveToBeReleased(SequenceOf(operation));
  if (!queue.Consume(SequenceOf(operation), outcome, end)) {
    return absl::NotFoundError(
        absl::StrCat("operation ", operation, " has been waited for by another thread"));
  }
  // Of an operation without an end ringd may still be using the staging block: it stays taken.
  if (!outcome.completed) {
    // No longer among those that the context's end releases.
    DeviceMemory* const device = device_.load(std::memory_order_acquire);
    if (!is_left && device != nullptr && end.timeline_pair != kNoTimelinePair) {
      device->ReleaseWaits(std::span(&end.timeline_pair, 1));
    }
    absl::Status why = state_.status();
    // An exit handler has ended the host path, and the context is as it was.
    return why.ok() ? absl::CancelledError("this process ends") : why;
  }
  if (outcome.status == 0) return Finish(std::span(&end, 1));
  staging_.Finish(end, false);
  if (end.device_block != nullptr) end.device_block->home.GiveBack(*end.device_block);
  absl::Status failure = DescribeFailure(outcome, *end.registration);
  if (end.by_order) end.registration->ordered->GiveBack(*end.registration);
  return failure;
}

absl::Status Context::DescribeFailure(const OperationOutcome& outcome,
                                      const Registration& registration) {
  if (!outcome.conflicting_metas.empty()) {
    return DescribeMismatch(registration, outcome.conflicting_metas);
  }
  auto code = static_cast<absl::StatusCode>(outcome.status);
  // From a wait, this code says that the operation goes on. One that ran into its own deadline has
  // failed its job.
  if (code == absl::StatusCode::kDeadlineExceeded) code = absl::StatusCode::kAborted;
  if (outcome.text != nullptr && !outcome.text->empty()) return absl::Status(code, *outcome.text);
  const absl::Status reason = state_.status();
  return absl::Status(code,
                      absl::StrCat("tensor '", registration.description.name, "': failed (",
                                   absl::StatusCodeToString(code), ")", reason.ok() ? "" : ": ",
                                   reason.ok() ? "" : reason.message()));
}

absl::Status Context::DescribeMismatch(const Registration& registration,
                                       const std::vector<std::uint32_t>& metas) {
  absl::StatusOr<std::string> text = absl::DeadlineExceededError("it does not answer");
  // One after the other, a model's tensors must not wait for a ringd that is stopped.
  if (Clock::now() >= asks_for_mismatches_from_.load(std::memory_order_relaxed)) {
    const Presence presence(calls_);
    text = control_->DescribeMismatch(registration.lane.communicator, registration.numbers.tensor,
                                      metas, Clock::now() + kMismatchDeadline);
    if (absl::IsDeadlineExceeded(text.status())) {
      asks_for_mismatches_from_.store(Clock::now() + kMismatchDeadline, std::memory_order_relaxed);
    }
  }
  if (text.ok()) return absl::InvalidArgumentError(*text);
  const absl::Status reason = Explain(text.status());
  return absl::InvalidArgumentError(absl::StrCat(
      "tensor '", registration.description.name,
      "': the ranks' descriptions differ (and ringd can't say how: ", reason.message(), ")"));
}

}  // namespace ringd::client
