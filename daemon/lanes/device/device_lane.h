// A communicator's tensors in device memory, on this node: what NCCL carries.
#ifndef RINGD_DAEMON_LANES_DEVICE_DEVICE_LANE_H_
#define RINGD_DAEMON_LANES_DEVICE_DEVICE_LANE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/lanes/device/device_room.h"
#include "daemon/lanes/device/session_slab.h"
#include "daemon/schedule/protocol/tensor_meta.h"
#include "proto/base/clock.h"
#include "proto/types/ids.h"

namespace ringd {

// One member's part of one tensor.
struct DeviceOperand {
  std::uint64_t source = 0;  // bytes from the slab's start; checked against it
  std::uint64_t destination = 0;
  std::uint32_t timeline_pair = 0;
  std::uint64_t timeline_value = 0;
};

// Every member is a rank of one NCCL communicator, which comes about with the first operation. The
// members' parts of each operation go to their GPUs' threads, in the order of Start, which is that
// of all nodes. The operation has ended when all parts have.
//
// Thread safety: none; the progress thread owns it. Nothing blocks.
// Ownership: of what is in flight; holds the members' slabs, and borrows the room.
// Invariants: each operation that was started ends once, by Poll. After a failure none ends well.
class DeviceLane final : private DeviceEvents {
 public:
  struct Member {
    int rank = 0;                             // among Options::ranks
    std::shared_ptr<const SessionSlab> slab;  // of its session
  };
  struct Options {
    std::vector<Rank> ranks;  // of the communicator, in NCCL's order
    bool makes_id = false;    // this node has its first rank
    std::chrono::nanoseconds connect_patience{};
    // Of an operation, from when it is started; 0: kLongestOperation.
    std::chrono::nanoseconds operation_timeout{};
    // Whether all ranks have told that they have it still.
    std::function<bool(const KeptCommunicator&)> is_kept_by_all = [](const KeptCommunicator&) {
      return false;
    };
    // Hands an id that was made here, or that of a kept communicator, to the other nodes, by way of
    // the coordinator: it comes back by TakeId.
    std::function<void(const NcclIdBytes&, bool is_kept)> tell_id;
  };

  // What no setting bounds. A trainer may compute for long before a source is ready.
  static constexpr std::chrono::minutes kLongestOperation{30};
  // Who knows more of why an operation can't end (a control connection, a session) has so long to
  // say it.
  static constexpr std::chrono::milliseconds kBetterWord{500};
  // So long has the word of a rank's end, if its process has said that it ends and has aborted the
  // communicator. It always comes, and late on a busy machine.
  static constexpr std::chrono::milliseconds kWordOfEnd{5000};

  DeviceLane(Options options, std::vector<Member> members, DeviceRoom* room);
  ~DeviceLane() override;
  DeviceLane(const DeviceLane&) = delete;
  DeviceLane& operator=(const DeviceLane&) = delete;

  // One operation: an all-reduce or a broadcast of tensors that may be fused. `operands`: by tensor
  // and member, all members of the first tensor first.
  void Start(OperationId id, std::span<const TensorMeta* const> metas,
             std::span<const DeviceOperand> operands, Clock::time_point now);

  // As v1::DeviceId has it.
  struct Id {
    NcclIdBytes unique_id{};
    bool registers = false;  // all ranks can agree whether to register their memory with NCCL
    bool is_kept = false;    // of a communicator that an earlier job has left here
  };
  // The coordinator has passed an id on. Another one than the first changes nothing.
  void TakeId(const Id& id);

  struct End {
    OperationId id;
    // kInvalidArgument: NCCL can't do this; the communicator goes on.
    absl::Status status;
  };
  // Operations that have ended since the last call.
  std::vector<End> TakeEnds();
  // Members whose streams have not come to the operation's tensors, for some time now: their GPUs
  // compute, or wait for something.
  std::vector<int> MembersNotReady(OperationId id) const;
  // Why what is in flight can't end well, once nobody has had a better word for kBetterWord or
  // kWordOfEnd.
  absl::Status Health(Clock::time_point now) const;

  // Ends everything in flight: NCCL's communicators, and what streams wait for. Quiet() soon.
  void Abort(absl::string_view reason);
  // No GPU touches the members' memory for this lane.
  bool Quiet() const noexcept { return buckets_.empty(); }

  // How a member's tensors on its GPU are reduced, for ringctl. By the host path
  // (LaunchedBy::kHost) nothing of it is NCCL's: nccl_rank is -1, and `failure` says why; empty: it
  // was asked for.
  struct Description {
    Rank rank;      // of the communicator
    int nccl_rank;  // the ranks of a node follow each other there
    std::string gpu;
    std::optional<bool> is_under_mps;
    LaunchedBy launched_by = LaunchedBy::kEngine;
    std::string nccl_version;  // empty: not known before it is "connecting", nor when it is gone
    std::string state;         // "waiting", "connecting", "ready", "failed"
    std::string failure;       // an asynchronous error of NCCL's or CUDA's, or why it was aborted
    std::uint64_t slab_bytes = 0;    // device memory: of the session, the timeline included
    std::uint64_t fusion_bytes = 0;  // and for packing this communicator's buckets
    // Of this memory; nothing: not known, or the ranks have not agreed yet.
    std::optional<std::uint64_t> registered_bytes;
    std::string why_not_registered;  // of 0
  };
  std::vector<Description> Describe() const;

 private:
  struct LocalRank {
    Member member;
    DeviceCommunicatorId communicator;
    bool connected = false;
  };
  struct Running {
    int parts = 0;  // that have not ended
    absl::Status status;
  };

  void OnId(const NcclIdCreated& created) override;
  void OnConnected(const DeviceCommunicatorConnected& connected) override;
  void OnFailed(const DeviceCommunicatorFailed& failed) override;
  void OnBucketAwaits(const DeviceBucketAwaits& told) override;
  void OnBucketEnded(const DeviceBucketEnded& ended) override;

  // Another job may use the communicator when this lane has ended.
  bool CanBeKept() const;
  void Keep(bool in_order);
  void Meet(Clock::time_point now);
  void TakeKept();

  DeviceBucket MakeBucket(std::span<const TensorMeta* const> metas, int rank) const;
  void Connect(Clock::time_point now);
  // `is_certain`: nobody has a better word.
  void NoteFailure(const absl::Status& why, bool is_certain = false);

  const Options options_;
  DeviceRoom* const room_;
  std::vector<LocalRank> ranks_;
  bool id_asked_ = false;
  std::optional<Id> id_;
  std::uint64_t launched_ = 0;                              // KeptCommunicator's
  bool begun_ = false;                                      // an operation has been started
  bool connects_ = false;                                   // Connect has been called
  std::vector<std::pair<std::size_t, DeviceBucket>> held_;  // until then, with its rank
  std::unordered_map<std::uint64_t, OperationId> buckets_;
  std::unordered_map<std::uint64_t, int> awaiting_;  // of buckets_, by which member's stream
  std::unordered_map<OperationId, Running> running_;
  std::vector<End> ends_;
  std::uint64_t next_bucket_ = 1;
  absl::Status failure_;
  bool is_certain_ = false;
  Clock::time_point failed_at_;
  bool aborted_ = false;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_LANES_DEVICE_DEVICE_LANE_H_
