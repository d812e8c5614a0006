// The ranks of an emulated communicator, a process each with a GPU of its own, for tests.
#ifndef RINGD_TESTS_GPU_EMULATOR_NCCL_EMULATED_RANKS_H_
#define RINGD_TESTS_GPU_EMULATOR_NCCL_EMULATED_RANKS_H_

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/nccl/nccl_api.h"
#include "tests/gpu/emulator/cuda/emulated_process.h"

namespace ringd::emulator {

// From the runfiles' root.
inline constexpr char kNcclLibrary[] = "tests/gpu/emulator/nccl/libnccl.so.2";

// How a test's collectives are called: types that a C interface has not.
inline void* Pointer(CUdeviceptr memory) {
  return reinterpret_cast<void*>(memory);  // NOLINT(performance-no-int-to-ptr)
}
inline NcclStream* Stream(CUstream stream) { return reinterpret_cast<NcclStream*>(stream); }

// What the body of a rank sees. A check that fails ends its process, with what and where.
class NcclRank {
 public:
  // Opens NCCL, and makes the device with the rank's number current.
  NcclRank(const Child& child, int rank, int size);

  const NcclApi& nccl() const { return *nccl_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  // Of rank 0's ncclGetUniqueId; no other rank has asked for one.
  const NcclUniqueId& id() const { return id_; }

  void CheckResult(NcclResult expected, NcclResult found, const char* text, const char* file,
                   int line) const;

  // A communicator of all ranks, which blocks or does not.
  NcclComm* Join(bool is_blocking = true) const;
  // Begins to make one that does not block.
  NcclComm* BeginJoin() const;
  // Waits until a communicator that does not block has done what it was told.
  void WaitReady(NcclComm* comm) const;
  // Of ncclCommGetAsyncError.
  NcclResult State(NcclComm* comm) const;

  // Device memory with these values, and the values of device memory.
  CUdeviceptr Floats(const std::vector<float>& values) const;
  std::vector<float> ReadFloats(CUdeviceptr memory, std::size_t count) const;
  // A sum of float32 in place, launched on `stream`.
  NcclResult Sum(NcclComm* comm, CUdeviceptr memory, std::size_t count, CUstream stream) const;

  // Passes when all ranks, and the test, have come here.
  void Meet() const;
  // Long enough for what is not to happen.
  static void Pause();

 private:
  friend class EmulatedRanks;
  void Introduce();

  const Child& child_;
  const int rank_;
  const int size_;
  std::unique_ptr<const NcclApi> nccl_;
  NcclUniqueId id_{};
};

// In a body, where `child` and `rank` are what it was given.
#define RANK_NCCL(expected, call) rank.CheckResult((expected), (call), #call, __FILE__, __LINE__)
#define RANK_OK(call) RANK_NCCL(kNcclSuccess, call)

using RankBody = std::function<void(const Child& child, const NcclRank& rank)>;

// Variables by their whole names. "%r" in a value stands for the rank.
using Environment = std::map<std::string, std::string>;

// Thread safety: one thread. Ownership: kills and reaps the processes when it goes.
class EmulatedRanks {
 public:
  // Forks. The calling process must not have opened the libraries itself.
  EmulatedRanks(int size, const Environment& environment, const RankBody& body);

  EmulatedProcess& operator[](std::size_t rank) { return *processes_[rank]; }
  // The test's side of NcclRank::Meet.
  void Meet();
  // Waits for all of them. "": all came to the end of the body; else what went wrong, by rank.
  std::string Join();

 private:
  std::vector<std::unique_ptr<EmulatedProcess>> processes_;
};

// All of it, from beginning to end, for bodies that never Meet. A rank's process may end while
// others still make the communicator, which fails then: bodies end after something that all ranks
// have a part in.
std::string RunRanks(int size, const Environment& environment, const RankBody& body);

}  // namespace ringd::emulator

#endif  // RINGD_TESTS_GPU_EMULATOR_NCCL_EMULATED_RANKS_H_
