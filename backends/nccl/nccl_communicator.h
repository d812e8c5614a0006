// One rank of an NCCL communicator, with a bound on every wait.
#ifndef RINGD_BACKENDS_NCCL_NCCL_COMMUNICATOR_H_
#define RINGD_BACKENDS_NCCL_NCCL_COMMUNICATOR_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/types/data_type.h"
#include "proto/types/reduce_op.h"

namespace ringd {

struct NcclApi;  // nccl_api.h: the functions
struct NcclComm;
enum NcclResult : int;

// Opens the library (as NcclApi::Open). SetNcclEnvironment comes before.
absl::StatusOr<std::shared_ptr<const NcclApi>> OpenNccl(const std::string& file);

// Sets NCCL's variables that ringd depends on; NCCL reads them when it is first used. Those that
// the user has set stay, but for the first.
//   NCCL_COMM_BLOCKING=0: else it would overrule that communicators don't block.
//   NCCL_LAUNCH_ORDER_IMPLICIT=1: collectives of several communicators on one GPU run in the order
//     in which they are launched (User Guide, Environment Variables; from NCCL 2.26).
//   NCCL_P2P_DIRECT_DISABLE=1: an engine has several GPUs, and NCCL up to 2.21 would write into
//     slabs of other GPUs, which only their own can (Environment Variables, the same: memory that
//     is not by itself accessible to other GPUs).
//   NCCL_SOCKET_IFNAME: `interfaces`, whole names with commas in between; unless empty.
// Not thread-safe: before the process has threads.
void SetNcclEnvironment(const std::string& interfaces);

// The same in a trainer's process, whose variables are its own: only NCCL_SOCKET_IFNAME is set, if
// it is unset. NCCL has read its variables already if the trainer has used it before. Without
// NCCL_LAUNCH_ORDER_IMPLICIT communicators have to take turns.
//   kFailedPrecondition: NCCL_COMM_BLOCKING says that communicators block.
absl::Status PrepareNcclEnvironment(const std::string& interfaces);

// Whether NCCL keeps collectives of several communicators on one GPU in the order of their launches
// by itself: from 2.26, with the variable above. Else one must have ended before that of another
// communicator is launched (User Guide, Using multiple NCCL communicators concurrently).
bool OrdersLaunches(const NcclApi& api);

// Such as "2.29.7".
std::string VersionOf(const NcclApi& api);

// What the ranks of one communicator have in common. It is good for one communicator.
using NcclIdBytes = std::array<char, 128>;

// Makes one. Opens a socket, at which a thread of this process brings the ranks together: if the
// process ends before, nobody is. Blocks for as long as looking at the network's interfaces takes.
// As NcclStatus says.
absl::StatusOr<NcclIdBytes> NewNcclId(const NcclApi& api);

// Whether NCCL reduces such elements so on a GPU of this compute capability (what is before its
// point): Ok or kUnimplemented, with the reason. Integers are not averaged (NCCL's rounding is not
// documented): sum them and divide. float8 needs NCCL 2.24, and 9.0 of all GPUs of the communicator
// (NCCL's sources, ArgsCheck), of which this looks at one.
absl::Status CheckNcclReduction(const NcclApi& api, int compute_major, DataType type, ReduceOp op);

// For `ringctl comms`.
struct NcclDescription {
  std::string version;  // "2.29.7"
  int rank = 0;
  int size = 0;
  std::string gpu;      // its UUID
  std::string state;    // "connecting", "ready", "failed"
  std::string failure;  // why: an asynchronous error of NCCL's, or the reason of an abort
  // Memory of this rank's GPU in which NCCL may reduce without copies through buffers of its own.
  std::uint64_t registered_bytes = 0;
  std::string not_registered;  // why there is none; empty: there is, or it was not asked for
};

// Memory that is registered with one communicator. A value: copies name the same.
struct NcclRegistration {
  void* handle = nullptr;  // NCCL's
  std::size_t bytes = 0;
};

// Thread safety: PrepareAbort, BeginAbort and Describe on any thread. All else on one thread at a
//   time, with the context of the GPU current there. No method but Abort and the destructor waits
//   for other ranks, the GPU or another thread.
// Ownership: shares the functions. Buffers and streams are the caller's; they stay until what was
//   launched is done, or the communicator is gone (IsGone).
class NcclCommunicator {
 public:
  enum class State { kInProgress, kReady, kFailed };

  struct Spec {
    NcclIdBytes id{};
    int rank = 0;
    int size = 1;
    std::string gpu;        // for texts
    int compute_major = 0;  // of its compute capability
  };

  // Begins to meet the other ranks; the communicator is in progress then. It has no deadline: who
  // has one calls BeginAbort.
  //   kInvalidArgument: no such rank.  Others as NcclStatus says.
  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> Begin(std::shared_ptr<const NcclApi> api,
                                                                 const Spec& spec);

  // Aborts unless that has been done, and waits for it for kAbortPatience at most.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // How far the last call has come. kFailed is final: status() says why.
  State Poll();
  // Ok, or the first failure: an asynchronous error of NCCL's (as NcclStatus says), or kAborted
  // with the reason of an abort.
  absl::Status status() const;

  // Launches on `stream` (a CUstream). `send` and `receive` are device addresses of `count`
  // elements, equal or apart. Returns at once, and leaves the communicator in progress: before it
  // is ready again nothing may be enqueued on `stream`, and no other collective be launched, since
  // it is NCCL's matter when it does the launch (User Guide, Nonblocking Group Operation).
  //   kUnimplemented: as CheckNcclReduction.  kFailedPrecondition: not ready.
  //   Others: the communicator has failed.
  absl::Status AllReduce(std::uint64_t send, std::uint64_t receive, std::uint64_t count,
                         DataType type, ReduceOp op, void* stream);

  // The same of `bytes` bytes that rank `root` has at `send`; that of others counts for nothing.
  absl::Status Broadcast(std::uint64_t send, std::uint64_t receive, std::uint64_t bytes, int root,
                         void* stream);

  // Registers memory of the GPU, whole: NCCL may then work in it directly (User Guide, User Buffer
  // Registration). Local: no other rank hears of it. But the buffers of one collective have to be
  // registered on all ranks, or on none (the same), and both of a rank's: the caller sees to that.
  // It stays until Deregister, or until the communicator is gone (IsGone), and so must the memory.
  //   kUnimplemented: NCCL does not register it, with its reason (NCCL_LOCAL_REGISTER=0 is one).
  //   The communicator is as it was.  kFailedPrecondition: not ready.
  //   Others: the communicator has failed.
  absl::StatusOr<NcclRegistration> Register(std::uint64_t address, std::size_t bytes);

  // Precondition: nothing that was launched uses the memory any more.
  //   kFailedPrecondition: not ready.  Others: the communicator has failed, and the memory has to
  //   stay until it is gone.
  absl::Status Deregister(const NcclRegistration& registration);

  // For Describe: why the caller does not register its memory.
  void NoteNotRegistered(absl::string_view why);

  // Begins to let go in peace: NCCL finishes what other ranks still want of this one (API,
  // ncclCommFinalize). In progress until then; BeginDestroy follows. Nothing more may be launched.
  //   kFailedPrecondition: not ready.  Others: the communicator has failed.
  absl::Status BeginFinalize();

  // After BeginFinalize, when it is ready again: the communicator goes, on a thread of its own. Has
  // failed from then on. Never blocks; IsGone says when it is done.
  void BeginDestroy();

  // Makes everything in flight here end without a result, and the communicator go. Other ranks are
  // not told (User Guide, ncclCommAbort is local). Never blocks: another thread calls
  // ncclCommAbort, which may take long. Idempotent; the first reason stays.
  void BeginAbort(absl::string_view reason);

  // The same, but ncclCommAbort is called only when BeginAbort is, or after half a second. It frees
  // memory, for which CUDA waits until the GPU has nothing to do for this process, and may keep the
  // calls of all other threads. So whoever can let streams go does that in between.
  void PrepareAbort(absl::string_view reason);

  // BeginAbort, and waits for its end: false if that has not come within `patience`. Then the
  // communicator and what it holds are given up as they are.
  bool Abort(absl::string_view reason, std::chrono::milliseconds patience = kAbortPatience);

  // Whether ncclCommAbort or ncclCommDestroy has returned: nothing of this communicator touches
  // memory any more.
  bool IsGone() const;

  NcclDescription Describe() const;

  static constexpr std::chrono::milliseconds kAbortPatience{1000};

 private:
  struct Shared;  // what the aborting thread needs when this object has gone

  using Function = absl::FunctionRef<NcclResult(const NcclApi& api, NcclComm* comm)>;
  // Calls a function of NCCL's; `result` is what that answers, as NcclStatus says. Not ok: it was
  // not called, since the communicator is not ready or has failed.
  absl::Status Call(const char* name, Function function, absl::Status* result);
  // The same of one that may answer "in progress", and without which the communicator has failed.
  absl::Status Launch(const char* name, Function function);
  void BeginEnd(absl::string_view reason, bool is_finalized, bool may_end);

  explicit NcclCommunicator(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

  std::shared_ptr<Shared> shared_;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_NCCL_NCCL_COMMUNICATOR_H_
