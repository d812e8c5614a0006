// One collective as the daemon hands it to a communicator, and what comes back.
#ifndef RINGD_BACKENDS_COLLECTIVE_REQUEST_H_
#define RINGD_BACKENDS_COLLECTIVE_REQUEST_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/strings/string_view.h"
#include "backends/block_map.h"
#include "proto/types/collective_kind.h"
#include "proto/types/data_type.h"
#include "proto/types/ids.h"
#include "proto/types/reduce_op.h"

namespace ringd {

// A collective's data on this node: gives the input and takes the result, range by range while the
// collective runs, so that packing, reducing and unpacking overlap with the transfer, and take one
// pass over memory together. Ranges are [begin, end) in bytes from the start of the request's
// buffer, and whole elements.
//
// The buffer is for what is on its way: input and result may lie elsewhere, and what need not pass
// through the buffer doesn't.
//
// Every byte of this node's input is taken once: of what is combined by Input, AddInput or
// AddLastInput, of all else by Input. A successful operation hands over every byte of this node's
// result once, by AddLastInput, OnCombined or OnResult, before its Completion is returned; one that
// fails hands over each at most once. The kind's traits say what input and result are: all bytes,
// the node's own block (CollectiveRequest::blocks), or none. What lies between blocks is neither.
//
// Before a byte that was combined is handed over, all nodes have given theirs, and all nodes get
// the same bits: whoever combines the last input scales the result, the others copy it. Otherwise a
// node's own bytes are handed over as soon as they are sent.
//
// The first three may answer "not ready" (null or false): then they have done nothing, and are
// asked again later (from Progress), so an input that another thread finishes needs no notice, only
// Progress being called.
//
// Thread safety: called on the progress thread, from inside TryPost(), Progress() or Poll(). A call
//   must not call the communicator back.
class BufferAccessor {
 public:
  virtual ~BufferAccessor() = default;

  // Where this node's input of the range lies in one piece, to be sent: wherever it was given, or
  // packed into the buffer. It stays there until the range's result is handed over if that combines
  // other nodes' inputs with it (by then no send of it goes on, but for an operation that has
  // failed), and else until the Completion.
  virtual const std::byte* Input(std::size_t begin, std::size_t end) noexcept = 0;

  // The buffer's range becomes `partial` op this node's input.
  virtual bool AddInput(std::size_t begin, std::size_t end, const std::byte* partial) noexcept = 0;

  // The same where `partial` has all other nodes' inputs: makes the result, scaled. Returns where
  // it lies in one piece, to be sent; it stays there until the Completion. A reduce-scatter's is
  // not sent: then it need not lie in one piece, and any pointer but null will do.
  virtual const std::byte* AddLastInput(std::size_t begin, std::size_t end,
                                        const std::byte* partial) noexcept = 0;

  // The buffer's range has all nodes' inputs combined; scales it there.
  virtual void OnCombined(std::size_t begin, std::size_t end) noexcept = 0;

  // `result` is the range's result as another node made it, or this node's input where nothing is
  // combined: a broadcast's at the root, the own block of an all-gather. With `keep`
  // returns where it lies in one piece, to be sent on, until the Completion; else null.
  virtual const std::byte* OnResult(std::size_t begin, std::size_t end, const std::byte* result,
                                    bool keep) noexcept = 0;
};

// What a link probe finds out about the way from this node to another one.
struct LinkTimes {
  double round_trip_seconds = 0;  // of a message without bytes and its answer, at best
  double message_seconds = 0;     // until the answer to one of kLinkProbeBytes came, mostly
};

inline constexpr std::size_t kLinkProbeBytes = 128 * 1024;

// How an all-reduce is carried out; see backends/README.md. A backend with one way only takes it
// for all.
enum class AllReduceAlgorithm : std::uint8_t {
  kAuto = 0,  // as AlgorithmOptions says
  kFlat,
  kDoubling,
  kRing,
};

// Requirement: `id` is equal on all nodes for one collective and unique in its communicator, and
// kind, type, op, element_count, root, algorithm and blocks are equal on all nodes (the daemon has
// agreed on them).
struct CollectiveRequest {
  OperationId id;
  CollectiveKind kind = CollectiveKind::kAllReduce;
  DataType data_type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;  // kAverage is summed: the accessor knows the divisor, and divides
  // 0 is valid and moves nothing. A link probe's buffer gets a LinkTimes for each node (zeros for
  // the own one): two kFloat64 each.
  std::uint64_t element_count = 0;
  NodeIndex root;  // broadcast only: the node whose buffer is sent to all
  // A digest of what else the nodes say of the collective. Where they have not agreed before and
  // theirs differ, it ends with kDisagreement wherever a message of another node comes.
  std::uint64_t description = 0;
  // All-reduce only. Flat and doubling take one message: at most 128 KiB.
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::kAuto;
  // Kinds with parts only: which bytes of the buffer are each node's block, by node. Whole
  // elements, in the order of the nodes, with or without room between them; some may be empty. Of
  // no ranges: the buffer is divided evenly. They stay the caller's, until the Completion.
  std::span<const ByteRange> blocks;
  std::byte* buffer = nullptr;  // element_count * SizeOf(data_type) bytes, or null if 0
  // Null: input and result are the buffer, nothing is scaled. A reduce-scatter leaves partial sums
  // in the other nodes' blocks then.
  BufferAccessor* accessor = nullptr;
  std::uint64_t user_data = 0;  // comes back in the Completion
};

enum class CollectiveOutcome : std::uint8_t {
  kDone = 0,
  kCancelled,     // by Cancel()
  kPeerLost,      // a node of the communicator can't be reached any more: `culprit`
  kAborted,       // by Abort()
  kUnsupported,   // this backend can't do this kind, type or op; nothing was sent
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
  TimePoint last_sent;       // the last one handed to it
  TimePoint first_received;  // first message of this operation that arrived after it was posted
  TimePoint last_received;   // the last one that did
  TimePoint finished;
};

struct Completion {
  OperationId id;
  CollectiveOutcome outcome = CollectiveOutcome::kDone;
  NodeIndex culprit{-1};  // the node to blame, where one is; else -1
  std::uint64_t user_data = 0;
  CollectiveTimes times;
  // How it was carried out; kAuto where there is one way only.
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::kAuto;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_COLLECTIVE_REQUEST_H_
