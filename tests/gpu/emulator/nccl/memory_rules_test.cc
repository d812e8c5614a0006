// Rules about NCCL's memory. README.md names the documents.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/gpu/emulator/nccl/emulated_ranks.h"

namespace ringd::emulator {
namespace {

TEST_CASE("Emulated NCCL: its memory is device memory, and is given back by itself alone, once") {
  CHECK(RunRanks(1, {}, [](const Child& child, const NcclRank& rank) {
          const NcclApi& nccl = rank.nccl();
          void* memory = nullptr;
          RANK_NCCL(kNcclInvalidArgument, nccl.ncclMemAlloc(nullptr, 8));
          RANK_OK(nccl.ncclMemAlloc(&memory, 8));
          NcclComm* const comm = rank.Join();
          const CUstream stream = child.NewStream();
          RANK_OK(rank.Sum(comm, reinterpret_cast<CUdeviceptr>(memory), 2, stream));
          CHILD_OK(child.cuda().cuStreamSynchronize(stream));
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE,
                     child.cuda().cuMemFree(reinterpret_cast<CUdeviceptr>(memory)));
          RANK_NCCL(kNcclInvalidArgument, nccl.ncclMemFree(Pointer(child.NewMemory(8))));
          RANK_OK(nccl.ncclMemFree(memory));
          RANK_NCCL(kNcclInvalidArgument, nccl.ncclMemFree(memory));
          CHILD_CHECK(child.emulator().alias(reinterpret_cast<CUdeviceptr>(memory), 8) == nullptr);
        }) == "");
}

TEST_CASE("Emulated NCCL: no memory is left where the device has none") {
  CHECK(RunRanks(1, {{"RINGD_EMULATOR_CUDA_MEMORY_MIB", "8"}},
                 [](const Child&, const NcclRank& rank) {
                   void* memory = nullptr;
                   RANK_NCCL(kNcclUnhandledCudaError,
                             rank.nccl().ncclMemAlloc(&memory, std::size_t{16} << 20));
                 }) == "");
}

TEST_CASE("Emulated NCCL: what is registered is the communicator's device's, and goes once") {
  CHECK(
      RunRanks(
          1, {{"RINGD_EMULATOR_CUDA_DEVICES", "2"}}, [](const Child& child, const NcclRank& rank) {
            const NcclApi& nccl = rank.nccl();
            NcclComm* const comm = rank.Join();
            void* const memory = Pointer(child.NewMemory(64));
            child.UseDevice(1);
            void* const elsewhere = Pointer(child.NewMemory(64));
            child.UseDevice(0);
            void* handle = nullptr;
            char on_host[64] = {};
            RANK_NCCL(kNcclUnhandledCudaError, nccl.ncclCommRegister(comm, on_host, 64, &handle));
            RANK_NCCL(kNcclUnhandledCudaError, nccl.ncclCommRegister(comm, elsewhere, 64, &handle));
            RANK_NCCL(kNcclInvalidArgument, nccl.ncclCommRegister(comm, memory, 0, &handle));
            RANK_OK(nccl.ncclCommRegister(comm, memory, 64, &handle));
            RANK_OK(nccl.ncclCommDeregister(comm, handle));
            RANK_NCCL(kNcclInvalidArgument, nccl.ncclCommDeregister(comm, handle));
          }) == "");
}

TEST_CASE("Emulated NCCL: a window is registered by all ranks together, at a multiple of 4096") {
  EmulatedRanks ranks(2, {}, [](const Child& child, const NcclRank& rank) {
    const NcclApi& nccl = rank.nccl();
    NcclComm* const comm = rank.Join(false);
    void* memory = nullptr;
    RANK_OK(nccl.ncclMemAlloc(&memory, 8192));
    NcclWindow* window = nullptr;
    RANK_NCCL(kNcclInvalidArgument,
              nccl.ncclCommWindowRegister(comm, static_cast<char*>(memory) + 8, 64, &window,
                                          kNcclWindowSymmetric));
    if (rank.rank() == 1) rank.Meet();
    RANK_NCCL(kNcclInProgress,
              nccl.ncclCommWindowRegister(comm, memory, 8192, &window, kNcclWindowSymmetric));
    if (rank.rank() == 0) {
      rank.Pause();
      CHILD_CHECK(rank.State(comm) == kNcclInProgress);
      rank.Meet();
    }
    rank.WaitReady(comm);
    RANK_OK(nccl.ncclCommWindowDeregister(comm, window));
    RANK_NCCL(kNcclInvalidArgument, nccl.ncclCommWindowDeregister(comm, window));
  });
  ranks.Meet();
  CHECK(ranks.Join() == "");
}

TEST_CASE(
    "Emulated NCCL: windows of different sizes, or of different flags, are waited for in vain") {
  for (const bool is_size : {true, false}) {
    EmulatedRanks ranks(2, {}, [=](const Child& child, const NcclRank& rank) {
      const NcclApi& nccl = rank.nccl();
      NcclComm* const comm = rank.Join(false);
      void* memory = nullptr;
      RANK_OK(nccl.ncclMemAlloc(&memory, 8192));
      NcclWindow* window = nullptr;
      const bool differs = rank.rank() == 1;
      RANK_NCCL(kNcclInProgress,
                nccl.ncclCommWindowRegister(comm, memory, differs && is_size ? 4096 : 8192, &window,
                                            differs && !is_size ? 0 : kNcclWindowSymmetric));
      rank.Pause();
      CHILD_CHECK(rank.State(comm) == kNcclInProgress);
      rank.Meet();
      RANK_OK(nccl.ncclCommAbort(comm));
    });
    ranks.Meet();
    CHECK(ranks.Join() == "");
  }
}

TEST_CASE(
    "Emulated NCCL: memory that goes while it is registered breaks the communicator's calls") {
  CHECK(RunRanks(1, {}, [](const Child& child, const NcclRank& rank) {
          const NcclApi& nccl = rank.nccl();
          const CUstream stream = child.NewStream();
          NcclComm* const comm = rank.Join();
          const CUdeviceptr other = rank.Floats({1});
          void* handle = nullptr;
          const CUdeviceptr kept = child.NewMemory(64);
          RANK_OK(nccl.ncclCommRegister(comm, Pointer(kept), 64, &handle));
          RANK_OK(nccl.ncclCommDeregister(comm, handle));
          CHILD_OK(child.cuda().cuMemFree(kept));
          RANK_OK(rank.Sum(comm, other, 1, stream));
          CHILD_OK(child.cuda().cuStreamSynchronize(stream));
          const CUdeviceptr lost = child.NewMemory(64);
          RANK_OK(nccl.ncclCommRegister(comm, Pointer(lost), 64, &handle));
          CHILD_OK(child.cuda().cuMemFree(lost));
          RANK_NCCL(kNcclUnhandledCudaError, rank.Sum(comm, other, 1, stream));
          RANK_NCCL(kNcclUnhandledCudaError, nccl.ncclCommFinalize(comm));
          RANK_NCCL(kNcclUnhandledCudaError, nccl.ncclCommDestroy(comm));
          RANK_NCCL(kNcclUnhandledCudaError, nccl.ncclCommDeregister(comm, handle));
          RANK_OK(nccl.ncclCommDestroy(comm));
        }) == "");
}

TEST_CASE("Emulated NCCL: what is registered goes with its communicator, and not after it") {
  for (const bool is_aborted : {true, false}) {
    CHECK(RunRanks(1, {}, [=](const Child& child, const NcclRank& rank) {
            const NcclApi& nccl = rank.nccl();
            NcclComm* const comm = rank.Join();
            const CUdeviceptr memory = child.NewMemory(64);
            void* handle = nullptr;
            RANK_OK(nccl.ncclCommRegister(comm, Pointer(memory), 64, &handle));
            RANK_OK(is_aborted ? nccl.ncclCommAbort(comm) : nccl.ncclCommDestroy(comm));
            RANK_NCCL(kNcclInvalidArgument, nccl.ncclCommDeregister(comm, handle));
            RANK_NCCL(kNcclInvalidArgument,
                      nccl.ncclCommRegister(comm, Pointer(memory), 64, &handle));
            CHILD_OK(child.cuda().cuMemFree(memory));
          }) == "");
  }
}

TEST_CASE("Emulated NCCL: NCCL_LOCAL_REGISTER=0 registers nothing, and calls that a success") {
  CHECK(RunRanks(1, {{"NCCL_LOCAL_REGISTER", "0"}}, [](const Child& child, const NcclRank& rank) {
          void* handle = &handle;
          RANK_OK(
              rank.nccl().ncclCommRegister(rank.Join(), Pointer(child.NewMemory(64)), 64, &handle));
          CHILD_CHECK(handle == nullptr);
        }) == "");
}

// Registers `memory` on the ranks that are asked for, and sums it up.
void SumRegistered(const NcclRank& rank, NcclComm* comm, CUdeviceptr memory, bool registers,
                   CUstream stream) {
  void* handle = nullptr;
  if (registers) RANK_OK(rank.nccl().ncclCommRegister(comm, Pointer(memory), 4, &handle));
  RANK_OK(rank.Sum(comm, memory, 1, stream));
}

TEST_CASE("Emulated NCCL: all ranks' buffers are registered, or none; else they hang") {
  for (const int registering : {0, 1, 2}) {
    EmulatedRanks ranks(2, {}, [=](const Child& child, const NcclRank& rank) {
      NcclComm* const comm = rank.Join();
      const CUstream stream = child.NewStream();
      const CUdeviceptr memory = rank.Floats({1});
      SumRegistered(rank, comm, memory, rank.rank() < registering, stream);
      if (registering == 1) {
        rank.Pause();
        CHILD_CHECK(!child.IsDone(stream));
        rank.Meet();
        RANK_OK(rank.nccl().ncclCommAbort(comm));
        return;
      }
      CHILD_OK(child.cuda().cuStreamSynchronize(stream));
      CHILD_CHECK(rank.ReadFloats(memory, 1) == std::vector<float>({2}));
      rank.Meet();
    });
    ranks.Meet();
    CHECK(ranks.Join() == "");
  }
}

TEST_CASE("Emulated NCCL: buffers in symmetric windows lie alike on all ranks; else they hang") {
  for (const bool is_alike : {true, false}) {
    EmulatedRanks ranks(2, {}, [=](const Child& child, const NcclRank& rank) {
      const NcclApi& nccl = rank.nccl();
      NcclComm* const comm = rank.Join();
      void* memory = nullptr;
      RANK_OK(nccl.ncclMemAlloc(&memory, 8192));
      NcclWindow* window = nullptr;
      RANK_OK(nccl.ncclCommWindowRegister(comm, memory, 8192, &window, kNcclWindowSymmetric));
      const CUstream stream = child.NewStream();
      const CUdeviceptr at = reinterpret_cast<CUdeviceptr>(memory);
      RANK_OK(rank.Sum(comm, is_alike || rank.rank() == 0 ? at : at + 64, 1, stream));
      rank.Pause();
      if (is_alike) CHILD_OK(child.cuda().cuStreamSynchronize(stream));
      CHILD_CHECK(child.IsDone(stream) == is_alike);
      rank.Meet();
      RANK_OK(nccl.ncclCommAbort(comm));
    });
    ranks.Meet();
    CHECK(ranks.Join() == "");
  }
}

}  // namespace
}  // namespace ringd::emulator
