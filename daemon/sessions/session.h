// One trainer attached to this ringd: the daemon's end of its rings, and the words sent to it.
//
// Thread safety: none; the progress thread owns it.
// Ownership: owns the session's memory and descriptors. Executions that use the arena hold the
//   session.
// Trust: everything in the segment and the arena is input. Facts come from SessionResources and
//   from the registrations kept here; a record is copied once and the copy is checked. A client
//   that breaks the rules gets its session ended, with a reason; it can't make ringd fault, wait,
//   or touch memory that is not its own.
// Invariant: each submission returned by Next() is completed exactly once.
#ifndef RINGD_DAEMON_SESSIONS_SESSION_H_
#define RINGD_DAEMON_SESSIONS_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/lanes/device/session_slab.h"
#include "daemon/sessions/notice_queue.h"
#include "daemon/sessions/ordered_submissions.h"
#include "daemon/sessions/registration.h"
#include "daemon/sessions/registration_account.h"
#include "daemon/sessions/registration_table.h"
#include "daemon/sessions/session_resources.h"
#include "proto/attach/handshake.h"
#include "proto/base/clock.h"
#include "proto/base/doorbell.h"
#include "proto/shm/completion.h"
#include "proto/shm/session_segment.h"
#include "proto/shm/spsc_ring.h"
#include "proto/shm/staging_progress.h"
#include "proto/shm/submission.h"

namespace ringd {

// A submission that passed all checks. The pointers lie in the session's arena.
struct CheckedSubmission {
  std::uint64_t sequence = 0;
  // Stable until the submission is completed. Null: a ping, to be completed at once.
  const Registration* registration = nullptr;
  const std::byte* source = nullptr;
  std::byte* destination = nullptr;
  std::uint32_t registration_number = 0;
  std::uint64_t submitted_ns = 0;  // the client's word, for display
  bool follows_wait = false;
  // Of a tensor in device memory: how many of the session's so far followed a stream's wait, this
  // one included.
  std::uint64_t stream_waits = 0;
  bool by_order = false;  // `registration` is its own, and goes with it
  // Of a tensor that is staged in pieces (proto/shm/staging_progress.h); else null.
  StagingProgress* progress = nullptr;
  bool source_in_pieces = false;
  bool result_in_pieces = false;
  Doorbell* waiters = nullptr;  // to be rung when a piece of the result is there
  // Of a tensor in device memory, which has no pointers: bytes from the start of the session's
  // slab.
  std::uint64_t slab_source = 0;
  std::uint64_t slab_destination = 0;
  std::uint32_t timeline_pair = 0;

  // Whether another member's submission of the tensor, on the same communicator, may be one
  // operation with this.
  bool FitsTo(const Registration& other) const noexcept {
    return by_order ? registration->meta == other.meta : registration->meta_id == other.meta_id;
  }
  // The source is in the arena. The client's word.
  bool IsSourceThere() const noexcept {
    const std::uint64_t all = source_in_pieces ? AllStagingPieces(registration->bytes) : 0;
    return all == 0 || (progress->source.load(std::memory_order_acquire) & all) == all;
  }
};

class Session {
 public:
  // Requirement: the resources' memory is mapped.
  explicit Session(std::unique_ptr<SessionResources> resources);

  SessionId id() const noexcept { return resources_->id; }
  const std::string& token() const noexcept { return resources_->token; }
  const PeerCredentials& peer() const noexcept { return resources_->peer; }
  int lifeline() const noexcept { return resources_->lifeline.get(); }
  int pidfd() const noexcept { return resources_->pidfd.get(); }
  int event_fd() const noexcept { return resources_->event_fd.get(); }
  int arena_fd() const noexcept { return resources_->arena_fd.get(); }
  std::uint64_t arena_bytes() const noexcept { return resources_->arena_bytes; }
  // The most that the client may have in flight.
  std::uint32_t submission_capacity() const noexcept {
    return resources_->layout.submission_capacity;
  }

  // The next submission, or nothing. A status other than OK in `violation` means that the client
  // broke the rules: end the session, and call nothing but Notify any more. Allocates nothing but
  // what a submission by order needs while it is in flight, once.
  std::optional<CheckedSubmission> Next(absl::Status& violation) noexcept;

  // True if Next would return something, or TakeStagedNews() true. For the last look before the
  // engine sleeps.
  bool HasWork() const noexcept { return submissions_.HasWork() || StagedPieces() != staged_seen_; }
  // True if pieces of sources have come into the arena since the last call. The client's word.
  bool TakeStagedNews() noexcept {
    const std::uint32_t before = std::exchange(staged_seen_, StagedPieces());
    return staged_seen_ != before;
  }
  // Where the client writes its trace events: its word, for display.
  const TraceRingView& trace_ring() const noexcept { return view_.trace_ring; }
  // Tells the client where its node is in the job's ring.
  void SetRingPosition(const RingPosition& position) noexcept {
    view_.header->ring_position.store(position, std::memory_order_relaxed);
  }
  void SetEngineSleeps(bool sleeps) noexcept;
  // Tells the client that the engine is alive, by a number that grows.
  void ShowHeartbeat(std::uint64_t heartbeat) noexcept {
    view_.header->heartbeat.store(heartbeat, std::memory_order_relaxed);
  }
  // True if a thread of the client sleeps until something is completed. The client's word: a hint.
  bool ClientSleeps() const noexcept {
    return view_.header->completions.sleepers.load(std::memory_order_relaxed) != 0;
  }
  // True once the client leaves its job in order. Its word, and worth no more than such a call.
  bool SaysItLeaves() const noexcept {
    return view_.header->leaves.load(std::memory_order_relaxed) != 0;
  }
  // Takes what the client wrote to the eventfd.
  void DrainEventFd() noexcept;

  // Ends a submission. The client sees it at the latest after FlushCompletions. Its registration
  // may be gone afterwards.
  void Complete(const CheckedSubmission& submission, const absl::Status& status) noexcept;
  // Wakes the client's waiters if there are any and something was completed since the last call.
  void FlushCompletions() noexcept;

  // Tells the client something, without blocking. If it does not read, see NoticeQueue.
  void Notify(NoticeKind kind, absl::string_view text) noexcept;

  // Sends a notice whose text is a structure, with a descriptor (none if `fd` < 0). As Notify
  // otherwise.
  void SendMemory(NoticeKind kind, std::span<const std::byte> text, int fd) noexcept;

  // True if FlushNotices has something to do: call it every now and then.
  bool NoticesWait() const noexcept { return notices_.stirs(); }
  // An error: the client can't be told what it must know. End the session with this reason.
  absl::Status FlushNotices(Clock::time_point now) noexcept;
  // As Notify, before what still waits, which is dropped. Nothing is to be told after this.
  void NotifyLast(NoticeKind kind, absl::string_view text) noexcept;

  // The number for this description; the same for an equal one.
  // Requirement: there are fewer than RegistrationTable::kMost.
  RegistrationId Register(Registration registration) {
    return RegistrationId(registrations_.Add(std::move(registration)));
  }
  // As RegistrationTable::Remove.
  absl::StatusOr<std::unique_ptr<const Registration>> Unregister(std::uint32_t number) {
    return registrations_.Remove(number);
  }
  // What was registered under the number; null if nothing is. Stable until it is unregistered.
  const Registration* FindRegistration(std::uint32_t number) const noexcept {
    return registrations_.Find(number);
  }
  std::size_t registration_count() const noexcept { return registrations_.count(); }

  // Submissions on communicators that match by order.
  OrderedSubmissions& ordered() noexcept { return ordered_; }
  const OrderedSubmissions& ordered() const noexcept { return ordered_; }

  // Its device memory; null: it has none. Set once.
  const std::shared_ptr<const SessionSlab>& slab() const noexcept { return slab_; }
  void UseSlab(std::shared_ptr<const SessionSlab> slab) noexcept { slab_ = std::move(slab); }
  // The GPU that its trainer has opened, where its tensors are reduced in the host's memory; empty:
  // there is none.
  const HostPathGpu& host_path() const noexcept { return host_path_; }
  void UseHostPath(HostPathGpu gpu) noexcept { host_path_ = std::move(gpu); }

  // What of the user's account is the session's.
  RegistrationBytes& registration_bytes() noexcept { return registration_bytes_; }

  std::uint64_t submitted() const noexcept { return next_sequence_; }
  std::uint64_t completed() const noexcept { return completed_; }
  std::uint64_t failed() const noexcept { return failed_; }
  std::uint64_t in_flight() const noexcept { return next_sequence_ - completed_; }

 private:
  absl::Status Check(const Submission& record, CheckedSubmission& checked);
  absl::Status CheckOrdered(const Submission& record, CheckedSubmission& checked);
  // Where it is in the arena or the slab.
  absl::Status CheckPlace(const Submission& record, const Registration& registration,
                          CheckedSubmission& checked);
  // Of a tensor in device memory: what only such a one has.
  absl::Status CheckInSlab(const Submission& record, const Registration& registration,
                           CheckedSubmission& checked) const;
  std::uint32_t StagedPieces() const noexcept {
    // In one order with the bits that it counts and with who looks for sleepers: see StagedCopies
    // and ReducerPool.
    return view_.header->staged_pieces.load(std::memory_order_seq_cst);
  }

  std::unique_ptr<SessionResources> resources_;
  SessionSegmentView view_;
  RingConsumer<Submission> submissions_;
  RingProducer<CompletionRecord> completions_;
  RegistrationTable registrations_;
  RegistrationBytes registration_bytes_;
  OrderedSubmissions ordered_;
  std::shared_ptr<const SessionSlab> slab_;
  HostPathGpu host_path_;
  std::uint64_t stream_waits_ = 0;  // as CheckedSubmission's

  NoticeQueue notices_;
  std::uint32_t staged_seen_ = 0;
  std::uint64_t next_sequence_ = 0;
  std::uint64_t completed_ = 0;
  std::uint64_t failed_ = 0;
  bool completion_ring_damaged_ = false;
  bool completions_pending_ = false;
  std::string last_error_;
  std::uint32_t error_slot_ = 0;
  std::uint32_t error_versions_[kErrorTextSlots] = {};
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SESSIONS_SESSION_H_
