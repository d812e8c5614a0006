// The nodes of one job moving and reducing buffers together.
#ifndef RINGD_BACKENDS_COMMUNICATOR_H_
#define RINGD_BACKENDS_COMMUNICATOR_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "backends/collective_request.h"
#include "proto/types/ids.h"

namespace ringd {

// How collectives are cut and which algorithm they take. All nodes of a communicator must have the
// same values: each decides alone which messages to expect. The coordinator distributes its own.
struct AlgorithmOptions {
  // All-reduces over 3 to 16 nodes go through one of them and back, if what all others send to it
  // is at most this many bytes together: (nodes - 1) * bytes.
  std::uint64_t flat_all_reduce_bytes = 32 * 1024;
  // Otherwise those up to this many bytes take recursive doubling (few rounds), larger ones the
  // ring.
  std::uint64_t small_all_reduce_bytes = 32 * 1024;
  // Broadcasts up to this many bytes take a binomial tree, larger ones a pipelined chain.
  std::uint64_t small_broadcast_bytes = 32 * 1024;
  // Bytes of one message of a ring or chain: what is sent, reduced and taken as one piece.
  // Rounded down to a multiple of 64 and into 64 .. 131072; the two thresholds above are at most
  // this.
  std::uint32_t chunk_bytes = 128 * 1024;
};

inline constexpr std::uint32_t kMaxChunkBytes = 128 * 1024;

// As blocks are really cut.
constexpr std::uint32_t ChunkBytesOf(const AlgorithmOptions& options) noexcept {
  return std::clamp(options.chunk_bytes, 64u, kMaxChunkBytes) / 64 * 64;
}

// How many operations a communicator takes at once; TryPost answers false beyond it. More than the
// learned buckets that a coordinator hands out, since nodes start those in different orders.
inline constexpr std::size_t kMaxInFlightOperations = 2048;

// What a communicator gets of the lines to its neighbours while others want them, too.
struct LineShare {
  // Communicators of one id have one share together, of which each gets as much as the others. Of
  // this node alone: others have ids of their own. 0: a share of its own.
  std::uint64_t id = 0;
  // Relative to other shares. Communicators of one id have the same.
  std::uint32_t weight = 1;
};

struct CommunicatorSpec {
  // Drawn at random by the coordinator for each job and generation; every message carries it, so
  // that a message of a dead generation is never taken for one of this.
  std::uint64_t wire_id = 0;
  NodeIndex self;
  std::vector<std::string> addresses;   // by node: each node's Transport::LocalAddress()
  std::vector<std::string> node_names;  // by node: for error texts and statistics
  AlgorithmOptions algorithms;
  // What nodes of this job and generation prove to each other when they connect, from the job's
  // secret: 32 bytes. Empty where the backend makes no connections of its own.
  std::string key = {};
  LineShare share = {};
  // A backend that makes connections for each communicator opens those to the ring's neighbours at
  // once; else when something is first sent there, so that a communicator that idles has none.
  bool connects_at_once = true;
};

// What carries bytes to a neighbour, for people.
struct NeighbourLine {
  std::string transports;  // such as "tcp/eth0"
  // In use; by all communicators together where they share them. 0: the transport has none.
  int connections = 0;
  int bulk_connections = 0;  // of them; the rest is for urgent messages
  std::string reason = {};   // why fewer than were asked for
};

struct NeighbourStatistics {
  NodeIndex node;
  NeighbourLine line;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t messages_sent = 0;
  std::uint64_t messages_received = 0;
};

struct CommunicatorStatistics {
  std::uint64_t operations_posted = 0;
  std::uint64_t operations_done = 0;
  std::uint64_t operations_failed = 0;          // completed with any other outcome than kDone
  std::uint64_t bytes_reduced = 0;              // buffer bytes of the operations done
  std::uint64_t messages_discarded = 0;         // late ones, of operations cancelled or finished
  std::uint64_t messages_early = 0;             // ones that waited for their operation to be posted
  std::vector<NeighbourStatistics> neighbours;  // the nodes that messages were exchanged with
};

// One node's end of a communicator.
//
// Operations run concurrently and independently; the nodes may post them in different orders, and
// one node may be ahead of the others: what it sends early is kept within bounded memory.
//
// Thread safety: everything runs on the progress thread of its Transport.
// Ownership: buffers and accessors named in a request stay the caller's, and must stay valid until
//   that request's Completion has been returned by Poll(). The Transport must outlive this object.
//   Destruction fails what is in flight without completions; buffers are not touched afterwards. To
//   be sure that it does not block: Abort(), and destroy when Poll() has returned every completion.
// Invariant: each accepted request yields exactly one Completion, also after Cancel(), Abort() or
//   the loss of a node; when Poll() returns it, the buffer is neither read nor written any more.
class Communicator {
 public:
  virtual ~Communicator() = default;

  // Starts one collective and returns at once. False when too many are in flight: poll, then retry.
  // After a failure of the communicator requests are still accepted, and complete with the failure.
  // Requirement: within a channel, sequences are posted in ascending order (gaps are allowed). So
  //   whatever arrives for a sequence not above the last one posted, and not in flight, is late.
  [[nodiscard]] virtual bool TryPost(const CollectiveRequest& request) noexcept = 0;

  // Writes what has finished into `out`, in order of completion; returns how many. 0 is normal.
  // Work advances in Transport::Progress(), not here.
  virtual std::size_t Poll(std::span<Completion> out) noexcept = 0;

  // Gives one operation up on this node: it completes with kCancelled once nothing touches its
  // buffer. Of an operation that has not been posted here, says that it and all before it in its
  // channel never will be. Messages of either are discarded from now on. Other nodes are not told:
  // they wait until they cancel too. Does nothing for an operation that has finished.
  virtual void Cancel(OperationId id) noexcept = 0;

  // Fails everything in flight, and all that is posted later, with kAborted. Idempotent.
  virtual void Abort(absl::string_view reason) noexcept = 0;

  // OK, or why this communicator can't be used any more (the first cause, and it stays):
  //   kUnavailable: a node was lost; the message names it. See lost_node().
  //   kAborted: Abort() was called; the message is its reason.
  //   kInternal: messages that don't fit together.
  // Changes in Progress(), also while nothing is in flight, where the transport can see the loss.
  virtual absl::Status health() const = 0;

  // The node whose loss failed this communicator, or -1.
  virtual NodeIndex lost_node() const noexcept = 0;
  // True if no connection to it could be made: health() says to which address, and why. Its host
  // and its ringd may be well.
  virtual bool lost_node_is_unreached() const noexcept { return false; }

  // A snapshot; allocates.
  virtual CommunicatorStatistics Statistics() const = 0;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_COMMUNICATOR_H_
