#include "daemon/sessions/session.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"

namespace ringd {

Session::Session(std::unique_ptr<SessionResources> resources)
    : resources_(std::move(resources)),
      view_(ViewSessionSegment(resources_->segment.data(), resources_->layout)),
      submissions_(view_.submission_cursors, view_.submissions,
                   resources_->layout.submission_capacity),
      completions_(view_.completion_cursors, view_.completions,
                   resources_->layout.completion_capacity) {}

std::optional<CheckedSubmission> Session::Next(absl::Status& violation) noexcept {
  if (completion_ring_damaged_) {
    violation = absl::InvalidArgumentError("the completion ring's cursor jumped");
    return std::nullopt;
  }
  Submission record;
  switch (submissions_.TryPop(record)) {
    case RingResult::kOk:
      break;
    case RingResult::kCorrupt:
      violation = absl::InvalidArgumentError("the submission ring's cursor jumped");
      return std::nullopt;
    default:
      return std::nullopt;
  }
  CheckedSubmission checked;
  violation = Check(record, checked);
  if (!violation.ok()) return std::nullopt;
  ++next_sequence_;
  if (checked.by_order) {
    ordered_.Accept(*checked.registration);
  } else if (checked.registration != nullptr) {
    registrations_.Begin(checked.registration_number);
  }
  return checked;
}

absl::Status Session::Check(const Submission& record, CheckedSubmission& checked) {
  if (record.sequence != next_sequence_) {
    return absl::InvalidArgumentError(
        absl::StrCat("submission number ", record.sequence, " where ", next_sequence_, " is due"));
  }
  // The completion ring always has room for what is in flight, so completing never waits.
  if (in_flight() >= resources_->layout.submission_capacity) {
    return absl::InvalidArgumentError(
        absl::StrCat("more than ", resources_->layout.submission_capacity,
                     " submissions in flight (submission_ring_capacity)"));
  }
  if (record.registration == kPingRegistration) {
    checked.sequence = record.sequence;
    return absl::OkStatus();
  }
  if ((record.flags & kByOrder) != 0) return CheckOrdered(record, checked);
  const Registration* const found = registrations_.Find(record.registration);
  if (found == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("submission of registration ", record.registration, ", which does not exist"));
  }
  const Registration& registration = *found;
  if (record.element_count != registration.element_count) {
    return absl::InvalidArgumentError(absl::StrCat("submission of ", record.element_count,
                                                   " elements of '", registration.name,
                                                   "', which has ", registration.element_count));
  }
  return CheckPlace(record, registration, checked);
}

absl::Status Session::CheckOrdered(const Submission& record, CheckedSubmission& checked) {
  // One copy, which is checked: the client may write there at any time.
  OrderedScales scales;
  const OrderedScales& said = view_.ScalesOf(record.sequence);
  __atomic_load(&said.prescale, &scales.prescale, __ATOMIC_RELAXED);
  __atomic_load(&said.postscale, &scales.postscale, __ATOMIC_RELAXED);
  const absl::StatusOr<Registration*> registration = ordered_.Begin(record, scales);
  if (!registration.ok()) return registration.status();
  const absl::Status status = CheckPlace(record, **registration, checked);
  if (!status.ok()) ordered_.End(*registration);
  checked.by_order = true;
  return status;
}

absl::Status Session::CheckPlace(const Submission& record, const Registration& registration,
                                 CheckedSubmission& checked) {
  const bool on_device = registration.meta.place == TensorPlace::kDevice;
  const std::uint64_t arena = resources_->arena_bytes;
  const std::uint64_t given = registration.source_bytes;
  const std::uint64_t got = registration.destination_bytes;
  const std::uint64_t from = record.source_offset;
  const std::uint64_t to = record.destination_offset;
  if (!on_device && (given > arena || got > arena || from > arena - given || to > arena - got)) {
    return absl::InvalidArgumentError(
        absl::StrCat("submission of '", registration.name, "' reaches past the arena's end"));
  }
  const std::uint64_t element = SizeOf(registration.meta.dtype);
  if (from % element != 0 || to % element != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("submission of '", registration.name, "' is not aligned to its elements"));
  }
  if (from != to && from < to + got && to < from + given) {
    return absl::InvalidArgumentError(
        absl::StrCat("submission of '", registration.name, "': source and destination overlap"));
  }
  checked.sequence = record.sequence;
  checked.registration = &registration;
  checked.registration_number = record.registration;
  checked.submitted_ns = record.submitted_ns;
  checked.follows_wait = (record.flags & kFollowsWait) != 0;
  if (on_device) {
    if ((record.flags & kFollowsStreamWait) != 0) ++stream_waits_;
    checked.stream_waits = stream_waits_;
    return CheckInSlab(record, registration, checked);
  }
  const bool in_pieces =
      (record.flags & (kSourceInPieces | kResultInPieces)) != 0 && registration.bytes > 0;
  if (in_pieces && record.progress >= kStagingProgressCount) {
    return absl::InvalidArgumentError(absl::StrCat("submission of '", registration.name,
                                                   "' names staging progress ", record.progress,
                                                   " of ", kStagingProgressCount));
  }
  checked.source = resources_->arena.data() + from;
  checked.destination = resources_->arena.data() + to;
  if (in_pieces) {
    checked.progress = &view_.staging_progress[record.progress];
    checked.source_in_pieces = (record.flags & kSourceInPieces) != 0;
    checked.result_in_pieces = (record.flags & kResultInPieces) != 0;
    checked.waiters = &view_.header->completions;
  }
  return absl::OkStatus();
}

absl::Status Session::CheckInSlab(const Submission& record, const Registration& registration,
                                  CheckedSubmission& checked) const {
  // Nobody registers such a tensor without it.
  if (slab_ == nullptr || !slab_->Holds(record.source_offset, registration.source_bytes) ||
      !slab_->Holds(record.destination_offset, registration.destination_bytes)) {
    return absl::InvalidArgumentError(absl::StrCat("submission of '", registration.name,
                                                   "' is not all in the session's device memory"));
  }
  if (record.timeline_pair >= kTimelinePairs) {
    return absl::InvalidArgumentError(absl::StrCat("submission of '", registration.name,
                                                   "' names pair ", record.timeline_pair, " of ",
                                                   kTimelinePairs, " of the timeline"));
  }
  checked.slab_source = record.source_offset;
  checked.slab_destination = record.destination_offset;
  checked.timeline_pair = record.timeline_pair;
  return absl::OkStatus();
}

void Session::SetEngineSleeps(bool sleeps) noexcept {
  view_.header->engine_sleeps.store(sleeps ? 1 : 0, std::memory_order_relaxed);
}

void Session::DrainEventFd() noexcept {
  std::uint64_t count = 0;
  // Empty (EAGAIN) is normal: the client holds this descriptor too and may read it. It may also
  // clear O_NONBLOCK, which both share, so the call itself says that it does not wait.
  const iovec part{&count, sizeof(count)};
  [[maybe_unused]] const ssize_t got = ::preadv2(event_fd(), &part, 1, -1, RWF_NOWAIT);
}

void Session::Complete(const CheckedSubmission& submission, const absl::Status& status) noexcept {
  CompletionRecord record{};
  record.sequence = submission.sequence;
  record.status = static_cast<std::int32_t>(status.code());
  if (!status.ok()) {
    // Many operations that end for one reason share one slot.
    if (status.message() != absl::string_view(last_error_)) {
      last_error_ = std::string(status.message());
      error_slot_ = (error_slot_ + 1) % kErrorTextSlots;
      error_versions_[error_slot_] =
          WriteErrorText(view_.error_texts[error_slot_], error_versions_[error_slot_], last_error_);
    }
    const bool on_device = submission.registration != nullptr &&
                           submission.registration->meta.place == TensorPlace::kDevice;
    if (on_device && slab_ != nullptr) slab_->EndWaits(submission.timeline_pair);
    record.error_slot = error_slot_;
    record.error_version = error_versions_[error_slot_];
    ++failed_;
  }
  if (submission.by_order) {
    ordered_.End(submission.registration);
  } else if (submission.registration != nullptr) {
    registrations_.End(submission.registration_number);
  }
  ++completed_;
  completions_pending_ = true;
  // There is room for all that is in flight, so anything but kOk is the client's doing. Next()
  // tells.
  if (completions_.TryPush(record) != RingResult::kOk) completion_ring_damaged_ = true;
}

void Session::FlushCompletions() noexcept {
  if (!completions_pending_) return;
  completions_pending_ = false;
  view_.header->completions.Ring();
}

void Session::Notify(NoticeKind kind, absl::string_view text) noexcept {
  SendMemory(kind, std::as_bytes(std::span(text.data(), text.size())), -1);
}

void Session::SendMemory(NoticeKind kind, std::span<const std::byte> text, int fd) noexcept {
  notices_.Send(lifeline(), kind, text, fd, Clock::now());
}

absl::Status Session::FlushNotices(Clock::time_point now) noexcept {
  notices_.Flush(lifeline(), now);
  return notices_.error();
}

void Session::NotifyLast(NoticeKind kind, absl::string_view text) noexcept {
  notices_.SendLast(lifeline(), kind, text);
}

}  // namespace ringd
