// What a NodeScheduler tells about itself, for stall reports and status displays.
#ifndef RINGD_DAEMON_SCHEDULE_NODE_NODE_STATUS_H_
#define RINGD_DAEMON_SCHEDULE_NODE_NODE_STATUS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "daemon/schedule/node/node_actions.h"
#include "daemon/schedule/protocol/messages.h"
#include "daemon/schedule/protocol/schedule_time.h"

namespace ringd {

enum class TensorState : std::uint8_t {
  kIdle,       // not ready here
  kAnnounced,  // negotiated: other nodes are not ready yet, or the answer is under way
  kHeld,       // ready, in a learned bucket that lacks other tensors, or its launch
  kRunning,    // part of a started operation
};

// A tensor that was reported ready and has not ended.
struct PendingTensor {
  TensorHandle tensor;
  TensorState state = TensorState::kIdle;
  TimePoint since;                    // when it became ready here
  std::uint32_t channel = 0;          // of its bucket or operation; 0 when negotiated
  std::vector<TensorHandle> missing;  // kHeld: what the bucket lacks
};

struct NodeBucketStatus {
  std::uint32_t channel = 0;
  std::size_t bytes = 0;
  std::uint32_t occurrences = 0;  // started so far
  std::size_t filled = 0;         // tensors of the next occurrence that are ready
  bool frozen = false;
  std::chrono::nanoseconds ready_offset{0};  // of its last tensor within the step, usually
  std::vector<std::string> tensors;
};

struct NodeSchedulerStatus {
  Epoch epoch = 0;
  std::uint64_t messages_sent = 0;
  std::uint64_t messages_received = 0;
  // A step, as seen here, ends when a tensor becomes ready a second time. 0 in the steady state.
  std::uint64_t steps = 0;
  std::uint64_t messages_last_step = 0;
  std::uint64_t operations_negotiated = 0;
  std::uint64_t operations_learned = 0;
  std::uint64_t operations_cancelled = 0;
  std::uint64_t breaks_requested[kBreakReasonCount] = {};
  std::vector<NodeBucketStatus> buckets;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_NODE_NODE_STATUS_H_
