// One tensor handed to ringd: a record of the SubmissionRing. Written by the client, input to
// ringd.
#ifndef RINGD_PROTO_SHM_SUBMISSION_H_
#define RINGD_PROTO_SHM_SUBMISSION_H_

#include <cstdint>

#include "proto/base/cache_line.h"

namespace ringd {

enum SubmissionFlags : std::uint32_t {
  // This rank waited for an operation to end since its previous submission. So this tensor may be
  // one that comes only after the other is done, and the two must not be made to wait for each
  // other. A hint: a wrong one costs speed, never correctness.
  kFollowsWait = 1u << 0,
  // `progress` is valid: the source is still being copied into the arena (staging_progress.h).
  kSourceInPieces = 1u << 1,
  // `progress` is valid: the client wants to hear of the result's pieces.
  kResultInPieces = 1u << 2,
  // The operation is matched by order: `registration` is ringd's number of its communicator, and
  // `description` and `root_rank` say what it is (ordered_operation.h).
  kByOrder = 1u << 3,
  // Of a tensor in device memory: since this rank's previous one, a stream of its was made to wait
  // for an operation. Like kFollowsWait, of streams; but who leaves it out may find its own streams
  // waiting for each other.
  kFollowsStreamWait = 1u << 4,
};

// Stands for no tensor: ringd completes the submission at once. For finding out whether it answers.
inline constexpr std::uint32_t kPingRegistration = UINT32_MAX;

// What is to be done (kind, data type, operator, shape, communicator) stands in the registration,
// made once over gRPC; here stand only what changes from step to step. With kByOrder there is no
// registration, and all of it stands here.
struct alignas(kCacheLineBytes) Submission {
  // Chosen by the client: 0, 1, 2, ... without a gap. The completion carries it back.
  std::uint64_t sequence;
  // Bytes from the arena's start. Aligned to the element's size. They may be equal (in place); if
  // not equal the two ranges do not overlap.
  std::uint64_t source_offset;
  std::uint64_t destination_offset;
  // Must equal the registration's element count (redundant on purpose: a stale registration shows).
  // With kByOrder: how many there are.
  std::uint64_t element_count;
  std::uint64_t submitted_ns;  // CLOCK_MONOTONIC; for the record of stages only, never trusted
  std::uint32_t registration;
  std::uint32_t flags;     // SubmissionFlags; unknown bits are ignored
  std::uint32_t progress;  // which of the session's StagingProgress; zero without the flags
  // Of a tensor in device memory, whose offsets are those of the session's slab: the pair of values
  // in the slab's timeline by which the two processes' streams are ordered (TimelineValueOf). No
  // other operation in flight has it, and none after one that ended badly: its result is waited for
  // no more, whatever the value. Else zero.
  std::uint32_t timeline_pair;
  // With kByOrder: OrderedDescription's word, without member and place; else zero. If it says that
  // there are scales, they stand in the session segment (SessionSegmentView::ScalesOf).
  std::uint32_t description;
  std::int32_t root_rank;  // likewise: of the job; zero of kinds without a root
};
static_assert(sizeof(Submission) == 64);

// What the trainer writes into its pair's slot when the source is ready, and the engine into the
// other one when the result is there. It grows from each operation of a pair to the next.
constexpr std::uint64_t TimelineValueOf(std::uint64_t sequence) noexcept { return sequence + 1; }

}  // namespace ringd

#endif  // RINGD_PROTO_SHM_SUBMISSION_H_
