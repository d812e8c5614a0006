// The tensors that a NodeScheduler knows, by name and by handle.
//
// Thread safety: none.
// Ownership: owns the tensors; references stay valid until Insert or Erase.
// Invariant: a handle is an index; handles of erased tensors are used again.
#ifndef RINGD_DAEMON_SCHEDULE_NODE_TENSOR_TABLE_H_
#define RINGD_DAEMON_SCHEDULE_NODE_TENSOR_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/schedule/node/node_actions.h"
#include "daemon/schedule/node/node_status.h"
#include "daemon/schedule/node/ready_offset.h"
#include "daemon/schedule/protocol/schedule_time.h"
#include "daemon/schedule/protocol/tensor_meta.h"

namespace ringd {

class NodeBucket;

struct NodeTensor {
  std::string name;
  bool in_use = false;           // the handle is taken
  bool wanted = false;           // the engine holds the handle; else only a bucket names it
  NodeBucket* bucket = nullptr;  // null while negotiated
  std::size_t position = 0;      // in the bucket
  std::uint64_t last_step = 0;   // in which it was last reported ready
  ReadyOffset ready_offset;

  // Of the current occurrence; meaningless in state kIdle.
  TensorState state = TensorState::kIdle;
  bool announced = false;  // kAnnounced: the Ready message has been handed out
  bool follows_wait = false;
  bool needs_launch = false;
  bool behind_stream_wait = false;  // see NodeScheduler::OnStreamWait
  bool held_back = false;           // kAnnounced: not yet, and it is in no bucket's count
  TimePoint since;
  TensorMeta meta;                // of the local ranks, if they agree
  std::vector<RankMeta> reports;  // one per local rank if they do not
  OperationId operation;          // kRunning
};

class TensorTable {
 public:
  // The handle of `name`, newly made if needed.
  TensorHandle Insert(const std::string& name);
  void Erase(TensorHandle handle);

  // False if there is none.
  bool Find(const std::string& name, TensorHandle& handle) const;
  NodeTensor& operator[](TensorHandle handle) { return tensors_[handle.value()]; }
  const NodeTensor& operator[](TensorHandle handle) const { return tensors_[handle.value()]; }

  // Handles are 0 .. Capacity()-1; those not in use are to be skipped.
  std::size_t Capacity() const { return tensors_.size(); }

 private:
  std::vector<NodeTensor> tensors_;
  std::vector<TensorHandle> free_;
  std::unordered_map<std::string, TensorHandle> by_name_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_NODE_TENSOR_TABLE_H_
