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

}  // namespace
}  // namespace ringd::emulator
