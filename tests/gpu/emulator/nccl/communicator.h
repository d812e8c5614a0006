// One rank of an emulated communicator: what an ncclComm_t points to.
#ifndef RINGD_TESTS_GPU_EMULATOR_NCCL_COMMUNICATOR_H_
#define RINGD_TESTS_GPU_EMULATOR_NCCL_COMMUNICATOR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "backends/nccl/nccl_types.h"
#include "proto/base/mutex.h"
#include "proto/types/data_type.h"
#include "tests/gpu/emulator/nccl/registered_memory.h"
#include "tests/gpu/emulator/nccl/world.h"

namespace ringd::emulator {

// An operator of ncclRedOpCreatePreMulSum.
struct PreMulSum {
  DataType type = DataType::kFloat32;
  double factor = 1.0;           // of a scalar that was given at once
  const void* device = nullptr;  // else where it lies when the collective runs
};

// A call's work: what it returns becomes that of the call, or the asynchronous error.
using Job = std::function<NcclResult()>;

// Thread safety: all methods on any thread, except that world() is there once a Job of Join has
//   succeeded.
// Ownership: shared by the handle and by everything that is in flight; so it outlives an abort.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  // Makes one and its handle.
  static std::shared_ptr<Communicator> Create(int device, bool is_blocking);
  // Null if `handle` is none that is alive.
  static std::shared_ptr<Communicator> Find(const NcclComm* handle);
  // Gives back what it has of the host's memory, so it waits for all that the process has on the
  // device; from then on Find does not know it. Precondition: it is alive.
  void Free();
  NcclComm* handle() { return reinterpret_cast<NcclComm*>(this); }

  // Meets the other ranks; blocks. Where it may give up: aborted().
  NcclResult Join(const std::string& name, int size, int rank);
  World& world() const { return *world_; }
  int device() const { return device_; }
  bool is_blocking() const { return is_blocking_; }

  // kNcclSuccess, kNcclInProgress, or the error after which it can only be aborted.
  NcclResult state() const { return state_.load(std::memory_order_acquire); }
  void Fail(NcclResult error, const std::string& text);
  // What a call that needs a communicator without unfinished business gets: kNcclSuccess, or what
  // NCCL would return.
  NcclResult CheckReady() const;

  // Runs `job` here and now, or of a non-blocking communicator on a thread, after a delay.
  NcclResult Start(const Job& job);
  // Of a non-blocking communicator, while another's job works on it: state() is kNcclInProgress.
  void SetBusy();
  void SetIdle();

  // Makes everything in flight end, without a result. Local: no other rank hears of it.
  void Abort();
  bool aborted() const { return has_aborted_.load(std::memory_order_acquire); }
  // Waits for what is in flight here, then until all ranks of this host have come here, too.
  NcclResult Finalize();
  bool has_finalized() const { return has_finalized_.load(std::memory_order_acquire); }

  // Collectives are numbered from 1 as they are launched.
  std::uint64_t BeginLaunch();
  void EndCollective();

  // Chunks that have gone through the world's memory so far: the running collective's alone.
  std::uint64_t chunks = 0;

  NcclResult AddOperator(const PreMulSum& made, NcclRedOp* op);
  bool RemoveOperator(NcclRedOp op);
  std::optional<PreMulSum> FindOperator(NcclRedOp op) const;
  RegisteredMemory& registered() { return registered_; }
  const RegisteredMemory& registered() const { return registered_; }
  // Memory must not go while it is registered: kNcclSuccess, or what a call gets that finds it
  // gone.
  NcclResult CheckRegistered() const;

  std::uint64_t NextSplit() { return ++splits_; }
  std::uint64_t NextWindow() { return ++windows_; }

 private:
  Communicator(int device, bool is_blocking);

  const int device_;
  const bool is_blocking_;
  void* const flag_;  // by which NCCL's kernels see an abort; here it is only allocated and freed
  std::unique_ptr<World> world_;
  std::atomic<NcclResult> state_{kNcclSuccess};
  std::atomic<bool> has_joined_{false};
  std::atomic<bool> has_aborted_{false};
  std::atomic<bool> has_finalized_{false};
  std::atomic<std::uint64_t> launched_{0};
  std::atomic<std::uint64_t> ended_{0};
  std::atomic<std::uint64_t> splits_{0};
  std::atomic<std::uint64_t> windows_{0};
  mutable Mutex mutex_;
  std::map<NcclRedOp, PreMulSum> operators_ ABSL_GUARDED_BY(mutex_);
  RegisteredMemory registered_;
};

// Of this process's collectives on one device, all communicators': the order in which they were
// launched, which is that in which they run. A GPU may run two at once, or may not have the room.
//
// Thread safety: any thread.
class DeviceOrder {
 public:
  static std::uint64_t Append(int device, const Communicator* owner);
  static bool IsFirst(int device, std::uint64_t ticket);
  // Idempotent.
  static void Remove(int device, std::uint64_t ticket);
  static void RemoveAllOf(int device, const Communicator* owner);
};

}  // namespace ringd::emulator

#endif  // RINGD_TESTS_GPU_EMULATOR_NCCL_COMMUNICATOR_H_
