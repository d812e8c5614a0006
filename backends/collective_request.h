// One collective as the daemon hands it to a communicator, and what comes back.
#ifndef RINGD_BACKENDS_COLLECTIVE_REQUEST_H_
#define RINGD_BACKENDS_COLLECTIVE_REQUEST_H_

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "proto/types/collective_kind.h"
#include "proto/types/data_type.h"
#include "proto/types/ids.h"
#include "proto/types/reduce_op.h"

namespace ringd {

// Where a buffer lives. A backend must not touch the bytes of a kind that it does not know.
enum class MemoryKind : std::uint8_t { kHost = 0, kCuda = 1 };

struct MemoryPlace {
  MemoryKind kind = MemoryKind::kHost;
  std::int32_t device = -1;  // ordinal within the kind; -1 for host memory
};

// The owner of a buffer, asked and told about ranges of it while a collective runs, so that
// packing and unpacking overlap with the transfer. Ranges are [begin, end) in bytes from the start
// of the buffer, and whole elements.
//
// Thread safety: called on the progress thread, from inside TryPost(), Progress() or Poll(). A call
//   must not call the communicator back.
class BufferStages {
 public:
  virtual ~BufferStages() = default;

  // True once the range holds this node's input. The callee may do the packing right now, on this
  // thread. Asked before a range is sent, reduced into or written; when false, asked again
  // later (from Progress), so packing that another thread finishes needs no notice, only Progress
  // being called. Once true for a range it stays true. Not asked on a broadcast's receivers.
  virtual bool IsReady(std::size_t begin, std::size_t end) noexcept = 0;

  // The range holds the collective's result and will be read (sent on) but not written any more.
  // Of an operation that succeeds every byte is reported exactly once, before its Completion is
  // returned; of one that fails, at most once.
  virtual void OnFinal(std::size_t begin, std::size_t end) noexcept = 0;
};

// Requirement: `id` is equal on all nodes for one collective and unique in its communicator, and
// kind, type, op, element_count and root are equal on all nodes (the daemon has agreed on them).
struct CollectiveRequest {
  OperationId id;
  CollectiveKind kind = CollectiveKind::kAllReduce;
  DataType data_type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;  // kAverage is summed: who unpacks knows the divisor, and divides
  std::uint64_t element_count = 0;  // 0 is valid and moves nothing
  NodeIndex root;                   // broadcast only: the node whose buffer is sent to all
  MemoryPlace memory;
  std::byte* buffer = nullptr;  // in place; element_count * SizeOf(data_type) bytes, or null if 0
  BufferStages* stages = nullptr;  // null: the whole buffer is ready, and nobody unpacks early
  std::uint64_t user_data = 0;     // comes back in the Completion
};

enum class CollectiveOutcome : std::uint8_t {
  kDone = 0,
  kCancelled,     // by Cancel()
  kPeerLost,      // a node of the communicator can't be reached any more: `culprit`
  kAborted,       // by Abort()
  kUnsupported,   // this backend can't do this kind, type, op or memory; nothing was sent
  kDisagreement,  // a node's message does not fit this request (another size or kind): `culprit`
};

inline constexpr int kCollectiveOutcomeCount = 6;

// "done", "cancelled", "peer lost", ...
constexpr absl::string_view Name(CollectiveOutcome outcome) noexcept {
  constexpr absl::string_view kNames[kCollectiveOutcomeCount] = {
      "done", "cancelled", "peer lost", "aborted", "unsupported", "disagreement"};
  return static_cast<int>(outcome) < kCollectiveOutcomeCount ? kNames[static_cast<int>(outcome)]
                                                             : absl::string_view("invalid");
}

// When the stages of an operation were reached; a stage that was never reached is the epoch.
struct CollectiveTimes {
  using TimePoint = std::chrono::steady_clock::time_point;
  TimePoint posted;
  TimePoint first_sent;      // first message handed to the wire
  TimePoint first_received;  // first message of this operation that arrived after it was posted
  TimePoint finished;
};

struct Completion {
  OperationId id;
  CollectiveOutcome outcome = CollectiveOutcome::kDone;
  NodeIndex culprit{-1};  // the node to blame, where one is; else -1
  std::uint64_t user_data = 0;
  CollectiveTimes times;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_COLLECTIVE_REQUEST_H_
