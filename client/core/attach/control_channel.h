// The calls to ringd: gRPC on the socket that the attach handed over.
#ifndef RINGD_CLIENT_CORE_ATTACH_CONTROL_CHANNEL_H_
#define RINGD_CLIENT_CORE_ATTACH_CONTROL_CHANNEL_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/core/attach/launcher_environment.h"
#include "client/core/tensors/tensor_description.h"
#include "client/core/waiting/interrupt.h"
#include "proto/base/clock.h"
#include "proto/base/unique_fd.h"

namespace ringd::client {

struct JoinParameters {
  std::string job_id;
  Places places;
  std::string rendezvous;
  std::string secret;
  std::uint32_t start_timeout_ms = 0;
  std::uint32_t operation_timeout_ms = 0;
  std::string fusion;
  std::uint32_t weight = 0;
};

struct JoinedPlace {
  std::uint32_t communicator = 0;
  std::uint32_t generation = 0;
  std::int32_t node_count = 1;
  std::int32_t node_index = 0;
  std::int32_t cross_rank = 0;
  std::int32_t cross_size = 1;
  bool homogeneous = true;
  bool combines_locally = false;
  std::uint32_t rank_exchange_connections = 0;  // 0: there is no rank exchange
  std::uint32_t operation_timeout_ms = 0;       // 0: there is none
  std::int32_t engine_pid = 0;                  // as ringd sees it
  std::string node_name;
  std::string daemon_version;
};

struct AskedCommunicator {
  std::string name;
  std::vector<std::int32_t> ranks;
  std::uint32_t timeout_ms = 0;  // 0: ringd's start timeout
  bool by_order = false;         // its operations are matched by order
  bool again = false;            // an answer to an earlier ask may have been missed
};

struct MadeCommunicator {
  std::uint32_t id = 0;      // ringd's
  std::uint32_t number = 0;  // equal on all its ranks
  std::int32_t node_count = 1;
  std::int32_t node_index = 0;
  bool combines_locally = false;
};

struct AskedDevice {
  std::string uuid;
  std::uint64_t slab_bytes = 0;
  std::optional<bool> is_under_mps;  // as this process sees the GPU
  bool wants_host_path = false;
  std::string why_no_gpu{};  // not empty: this process can't use it; for the other ranks to know
};

struct OpenedDevice {
  bool trainer_launches = false;
  bool goes_by_host = false;  // there is no slab: tensors are reduced in the host's memory
  std::string why_host;       // empty: that was asked for
};

// How tensors on GPUs are reduced in a communicator in which this rank could use NCCL.
struct AgreedDevices {
  bool goes_by_host = false;
  // Which rank can't use NCCL, and why; or who had not said anything in time; empty: nobody.
  std::string why;
};

// Thread safety: any thread may call anything.
// Blocking: each call blocks until its deadline at most; when ringd dies, all return kUnavailable.
// Errors: as proto/rpc/client.proto gives them, with ringd's words.
class ControlChannel {
 public:
  // Takes the connected socket. `token` goes with every call.
  static std::unique_ptr<ControlChannel> Create(UniqueFd socket, const std::string& token);

  virtual ~ControlChannel() = default;

  // kCancelled: it was interrupted.
  virtual absl::StatusOr<JoinedPlace> Join(const JoinParameters& parameters,
                                           Clock::time_point deadline,
                                           const InterruptCheck& is_interrupted) = 0;
  // ringd's numbers, in the order of `tensors`.
  virtual absl::StatusOr<std::vector<RegisteredNumbers>> Register(
      std::uint32_t communicator, std::span<const TensorDescription> tensors,
      Clock::time_point deadline) = 0;
  // Gives ringd's numbers back; stops at one that it refuses.
  virtual absl::Status Unregister(std::span<const std::uint32_t> registrations,
                                  Clock::time_point deadline) = 0;
  // In what the local ranks' descriptions of a tensor differ; `metas` by local rank.
  virtual absl::StatusOr<std::string> DescribeMismatch(std::uint32_t communicator,
                                                       std::uint32_t tensor,
                                                       std::span<const std::uint32_t> metas,
                                                       Clock::time_point deadline) = 0;
  // kCancelled: it was interrupted. The other ranks may get the communicator nevertheless.
  virtual absl::StatusOr<MadeCommunicator> CreateCommunicator(
      const AskedCommunicator& asked, Clock::time_point deadline,
      const InterruptCheck& is_interrupted) = 0;
  // `id` is ringd's.
  virtual absl::Status DestroyCommunicator(std::uint32_t id, Clock::time_point deadline) = 0;
  // Device memory on a GPU; it, or the engine's channel if this process launches, comes as a notice
  // before this returns.
  virtual absl::StatusOr<OpenedDevice> OpenDevice(const AskedDevice& asked,
                                                  Clock::time_point deadline) = 0;
  // `communicator` is ringd's. Waits until enough of its ranks have opened a GPU.
  //   kCancelled: it was interrupted.
  virtual absl::StatusOr<AgreedDevices> AgreeOnDevices(std::uint32_t communicator,
                                                       Clock::time_point deadline,
                                                       const InterruptCheck& is_interrupted) = 0;
  // `failure`: LeaveRequest's, any text; empty: in order.
  virtual absl::Status Leave(absl::string_view failure, Clock::time_point deadline) = 0;
  // Asks ringd for a sign of life, unless such a question is under way, and returns how many it has
  // answered so far. Does not block. One thread at a time.
  virtual std::uint64_t Ping() = 0;
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_ATTACH_CONTROL_CHANNEL_H_
