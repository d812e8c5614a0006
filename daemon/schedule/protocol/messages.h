// What nodes and the coordinator of a communicator tell each other to agree on operations.
//
// Plain data: no serialisation here. Each node has one reliable channel to the coordinator and one
// back, both first in first out; nothing is assumed about the order between different nodes'
// channels. Every coordinator message goes to every node, in the same order.
//
// Epochs. The coordinator increments its epoch with each Schedule and each Retire; a node's epoch
// is the one it received last. A Ready carries the node's epoch, so that the coordinator can tell
// whether the node knew, when it announced a tensor, how that tensor is handled now.
#ifndef RINGD_DAEMON_SCHEDULE_PROTOCOL_MESSAGES_H_
#define RINGD_DAEMON_SCHEDULE_PROTOCOL_MESSAGES_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "daemon/schedule/protocol/tensor_meta.h"

namespace ringd {

using Epoch = std::uint64_t;

// Why a learned bucket was given up. The numbers are part of the protocol.
enum class BreakReason : std::uint8_t {
  kMeta = 0,       // a tensor came with another description, or local ranks disagree about it
  kBlocked = 1,    // ranks wait for something and do not submit the bucket's missing tensors
  kLate = 2,       // the bucket stays partly filled for very long although ranks are not blocked
  kWithdrawn = 3,  // no local rank has the tensor registered, or it has not come for very long
  kReplan = 4,     // the coordinator has a better plan; never sent by a node
};
inline constexpr int kBreakReasonCount = 5;

// "meta", "blocked", "late", "withdrawn", "replan"; "invalid" for anything else.
const char* Name(BreakReason reason) noexcept;

// ---- node to coordinator ----------------------------------------------------------------------

// One tensor that all local ranks of the node have submitted.
struct ReadyTensor {
  std::string name;
  // One entry if the local ranks agree (the node's lowest rank speaks for all), else one per rank.
  std::vector<RankMeta> reports;
  // Some local rank waited for an earlier operation before it submitted this tensor, so that the
  // tensor may never come while that operation is held back.
  bool follows_wait = false;

  friend bool operator==(const ReadyTensor&, const ReadyTensor&) = default;
};

struct Ready {
  Epoch epoch = 0;
  std::vector<ReadyTensor> tensors;

  friend bool operator==(const Ready&, const Ready&) = default;
};

// Asks for the end of a learned bucket. The node goes on as before until it receives Freeze.
struct Break {
  std::uint32_t channel = 0;
  BreakReason reason = BreakReason::kMeta;
  std::uint32_t started = 0;  // occurrences this node has started so far
  // kMeta: the tensors that came otherwise. kBlocked, kLate: the tensors that are missing.
  // kWithdrawn: those that nobody has registered, or all.
  std::vector<std::string> tensors;

  friend bool operator==(const Break&, const Break&) = default;
};

// All tensors of an occurrence of a bucket that needs a launch are ready at this node, which starts
// it when Launch comes.
struct Filled {
  std::uint32_t channel = 0;
  std::uint32_t occurrence = 0;

  friend bool operator==(const Filled&, const Filled&) = default;
};

// The node will start no further occurrence of the channel.
struct Frozen {
  std::uint32_t channel = 0;
  std::uint32_t started = 0;  // occurrences 0 .. started-1 have been started here

  friend bool operator==(const Frozen&, const Frozen&) = default;
};

using NodeMessage = std::variant<Ready, Break, Frozen, Filled>;

// ---- coordinator to all nodes -----------------------------------------------------------------

// Start operation {channel 0, sequence} with these tensors, in this order.
struct Execute {
  std::uint32_t sequence = 0;
  std::vector<std::string> tensors;

  friend bool operator==(const Execute&, const Execute&) = default;
};

// The current occurrence of the tensor, announced by every node, ends with this error.
struct FailTensor {
  std::string tensor;
  std::string error;

  friend bool operator==(const FailTensor&, const FailTensor&) = default;
};

struct ScheduledTensor {
  std::string name;
  TensorMeta meta;

  friend bool operator==(const ScheduledTensor&, const ScheduledTensor&) = default;
};

struct ScheduledBucket {
  std::uint32_t channel = 0;
  std::chrono::nanoseconds expected_fill{0};  // from its first to its last tensor, as observed
  std::vector<ScheduledTensor> tensors;       // in packing order

  friend bool operator==(const ScheduledBucket&, const ScheduledBucket&) = default;
};

// From here on the named tensors belong to these buckets, starting with each tensor's first
// occurrence that is not part of an operation sent before this message.
struct Schedule {
  Epoch epoch = 0;
  std::vector<ScheduledBucket> buckets;

  friend bool operator==(const Schedule&, const Schedule&) = default;
};

// Start the occurrence, which every node has filled. Nobody takes it back: no Freeze of the channel
// was sent before.
struct Launch {
  std::uint32_t channel = 0;
  std::uint32_t occurrence = 0;

  friend bool operator==(const Launch&, const Launch&) = default;
};

// Start no further occurrence of the channel and answer with Frozen.
struct Freeze {
  std::uint32_t channel = 0;

  friend bool operator==(const Freeze&, const Freeze&) = default;
};

// Occurrences 0 .. final_count-1 were started by all nodes and complete; a later one is cancelled.
// Its tensors, and those of a partly filled occurrence, are negotiated from here on.
struct Retire {
  Epoch epoch = 0;
  std::uint32_t channel = 0;
  std::uint32_t final_count = 0;

  friend bool operator==(const Retire&, const Retire&) = default;
};

using CoordinatorMessage = std::variant<Execute, FailTensor, Schedule, Freeze, Retire, Launch>;

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_PROTOCOL_MESSAGES_H_
