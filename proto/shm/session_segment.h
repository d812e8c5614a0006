// The memory that one trainer shares with ringd, beside its arena: header, rings, error texts.
//
//   offset 0                 SessionHeader
//   submission_ring_offset   RingCursors, then submission_capacity x Submission
//   completion_ring_offset   RingCursors, then completion_capacity x CompletionRecord
//   error_text_offset        kErrorTextSlots x ErrorTextSlot
//   staging_progress_offset  kStagingProgressCount x StagingProgress
//   scales_offset            submission_capacity x OrderedScales
//   trace_ring_offset        TraceRingHeader, then kTrainerTraceEvents x TraceSlot
//
// ringd creates it, fills the header and seals it before the client sees it. ringd keeps its own
// copy of all it needs from the header and never reads those fields back.
#ifndef RINGD_PROTO_SHM_SESSION_SEGMENT_H_
#define RINGD_PROTO_SHM_SESSION_SEGMENT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "proto/base/cache_line.h"
#include "proto/base/doorbell.h"
#include "proto/shm/completion.h"
#include "proto/shm/error_text.h"
#include "proto/shm/ordered_operation.h"
#include "proto/shm/spsc_ring.h"
#include "proto/shm/staging_progress.h"
#include "proto/shm/submission.h"
#include "proto/trace/trace_ring.h"

namespace ringd {

inline constexpr std::uint64_t kSessionSegmentMagic = 0x31534553'44474e52;  // "RNGDSES1"
inline constexpr std::uint32_t kSessionSegmentVersion = 7;

// The trainer writes its own trace events into a ring of so many; ringd reads along, for display
// only.
inline constexpr std::uint32_t kTrainerTraceEvents = 8192;

// Where the job's node is in the ring, which tells what of a tensor is needed first.
struct RingPosition {
  std::uint32_t self = 0;
  std::uint32_t node_count = 0;  // 0: not known
};

struct SessionHeader {
  // Written once by ringd, before the client maps the segment.
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t session;
  std::uint64_t segment_bytes;
  std::uint64_t arena_bytes;
  std::uint32_t submission_capacity;  // records; a power of two
  std::uint32_t completion_capacity;  // records; a power of two, at least submission_capacity
  std::uint64_t submission_ring_offset;
  std::uint64_t completion_ring_offset;
  std::uint64_t error_text_offset;
  std::uint64_t staging_progress_offset;
  std::uint64_t trace_ring_offset;
  std::uint64_t scales_offset;

  // 1 while ringd's engine sleeps: after pushing, the client then writes the eventfd. Set and
  // cleared by ringd; the client clears it, too, when it wakes the engine, so that a burst of
  // submissions wakes it once. ringd never reads it. The fences are those of Doorbell: push, fence,
  // look here; store here, fence, look at rings.
  alignas(kCacheLineBytes) std::atomic<std::uint32_t> engine_sleeps;
  // How many pieces of sources the client has put into the arena so far (staging_progress.h),
  // modulo 2^32. Counted after the piece's bit was set; then engine_sleeps is looked at, as after
  // pushing.
  std::atomic<std::uint32_t> staged_pieces;
  // A hint for the client, by ringd when the job begins.
  std::atomic<RingPosition> ring_position;
  // Grows while ringd's engine is alive: at least once a second, by ringd. A client that waits and
  // sees it stand still knows that ringd hangs, or was stopped. A count, since the clocks of
  // containers may differ.
  std::atomic<std::uint64_t> heartbeat;
  // 1 once the client leaves its job in order. It says so by a call as well, which a ringd or an
  // engine that hangs does not take: then this tells the end of the lifeline from a death.
  std::atomic<std::uint32_t> leaves;

  // Rung by ringd after it has pushed completions; the client's waiters sleep on it.
  Doorbell completions;
};
static_assert(sizeof(SessionHeader) == 4 * kCacheLineBytes);
static_assert(std::atomic<RingPosition>::is_always_lock_free);

// The sizes that ringd chooses; offsets follow from them.
struct SessionSegmentLayout {
  std::uint32_t submission_capacity = 0;
  std::uint32_t completion_capacity = 0;

  constexpr std::uint64_t submission_ring_offset() const noexcept { return sizeof(SessionHeader); }
  constexpr std::uint64_t completion_ring_offset() const noexcept {
    return submission_ring_offset() + sizeof(RingCursors) +
           std::uint64_t{submission_capacity} * sizeof(Submission);
  }
  constexpr std::uint64_t error_text_offset() const noexcept {
    return completion_ring_offset() + sizeof(RingCursors) +
           std::uint64_t{completion_capacity} * sizeof(CompletionRecord);
  }
  constexpr std::uint64_t staging_progress_offset() const noexcept {
    const std::uint64_t end = error_text_offset() + kErrorTextSlots * sizeof(ErrorTextSlot);
    return (end + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
  }
  constexpr std::uint64_t scales_offset() const noexcept {
    return staging_progress_offset() + kStagingProgressCount * sizeof(StagingProgress);
  }
  constexpr std::uint64_t trace_ring_offset() const noexcept {
    const std::uint64_t end =
        scales_offset() + std::uint64_t{submission_capacity} * sizeof(OrderedScales);
    return (end + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
  }
  constexpr std::uint64_t segment_bytes() const noexcept {
    return trace_ring_offset() + TraceRingBytes(kTrainerTraceEvents);
  }
};

// Both sides' way to the objects behind the header. Does not own the memory.
struct SessionSegmentView {
  SessionHeader* header = nullptr;
  RingCursors* submission_cursors = nullptr;
  Submission* submissions = nullptr;
  RingCursors* completion_cursors = nullptr;
  CompletionRecord* completions = nullptr;
  ErrorTextSlot* error_texts = nullptr;
  StagingProgress* staging_progress = nullptr;
  OrderedScales* scales = nullptr;
  std::uint32_t submission_capacity = 0;
  TraceRingView trace_ring;

  // Of the submission with this number, until ringd has taken it, if its description says that
  // there are some. Written before the submission is pushed.
  OrderedScales& ScalesOf(std::uint64_t sequence) const noexcept {
    return scales[sequence % submission_capacity];
  }
};

inline SessionSegmentView ViewSessionSegment(std::byte* base,
                                             const SessionSegmentLayout& layout) noexcept {
  SessionSegmentView view;
  view.header = reinterpret_cast<SessionHeader*>(base);
  std::byte* submission_ring = base + layout.submission_ring_offset();
  view.submission_cursors = reinterpret_cast<RingCursors*>(submission_ring);
  view.submissions = reinterpret_cast<Submission*>(submission_ring + sizeof(RingCursors));
  std::byte* completion_ring = base + layout.completion_ring_offset();
  view.completion_cursors = reinterpret_cast<RingCursors*>(completion_ring);
  view.completions = reinterpret_cast<CompletionRecord*>(completion_ring + sizeof(RingCursors));
  view.error_texts = reinterpret_cast<ErrorTextSlot*>(base + layout.error_text_offset());
  view.staging_progress =
      reinterpret_cast<StagingProgress*>(base + layout.staging_progress_offset());
  view.scales = reinterpret_cast<OrderedScales*>(base + layout.scales_offset());
  view.submission_capacity = layout.submission_capacity;
  view.trace_ring = ViewTraceRing(base + layout.trace_ring_offset(), kTrainerTraceEvents);
  return view;
}

// Writes the header into a zeroed segment. ringd only.
void InitializeSessionSegment(std::byte* base, const SessionSegmentLayout& layout,
                              std::uint32_t session, std::uint64_t arena_bytes) noexcept;

// Checks what a client was handed: magic, version, and that the layout fits `mapped_bytes`.
//   kFailedPrecondition: the versions differ (both are named). kInvalidArgument: it makes no sense.
absl::Status CheckSessionSegment(const SessionHeader& header, std::uint64_t mapped_bytes);

}  // namespace ringd

#endif  // RINGD_PROTO_SHM_SESSION_SEGMENT_H_
