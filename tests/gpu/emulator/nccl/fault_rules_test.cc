// Rules about ranks that end, errors, and mishaps on demand. README.md names the documents.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "proto/base/clock.h"
#include "tests/gpu/emulator/nccl/emulated_ranks.h"

namespace ringd::emulator {
namespace {

// The first rank launches a collective and sees `expected` some time after the second has been
// killed; then an abort lets go of its stream within a second.
void CheckLoss(const Environment& environment, NcclResult expected) {
  EmulatedRanks ranks(2, environment, [expected](const Child& child, const NcclRank& rank) {
    NcclComm* const comm = rank.Join();
    const CUstream stream = child.NewStream();
    if (rank.rank() == 0) {
      RANK_OK(rank.Sum(comm, child.NewMemory(4), 1, stream));
    }
    child.Send(1);
    child.Receive();
    if (expected == kNcclSuccess) {
      rank.Pause();
    } else {
      child.WaitUntil([&] { return rank.State(comm) != kNcclSuccess; }, "the loss");
    }
    RANK_NCCL(expected, rank.State(comm));
    CHILD_CHECK(!child.IsDone(stream));
    const Clock::time_point begin = Clock::now();
    RANK_OK(rank.nccl().ncclCommAbort(comm));
    CHILD_OK(child.cuda().cuStreamSynchronize(stream));
    CHILD_CHECK(Clock::now() - begin < std::chrono::seconds(10));
  });
  for (std::size_t rank = 0; rank < 2; ++rank) CHECK(ranks[rank].Receive() == 1);
  ranks[1].Kill();
  CHECK(ranks[1].Join() == "killed by signal 9");
  ranks[0].Send(1);
  CHECK(ranks[0].Join() == "");
}

TEST_CASE("Emulated NCCL: a rank killed on the same host is not noticed") {
  CheckLoss({}, kNcclSuccess);
}

TEST_CASE("Emulated NCCL: a rank killed on another host breaks its connections") {
  CheckLoss({{"NCCL_HOSTID", "node-%r"}}, kNcclRemoteError);
}

TEST_CASE("Emulated NCCL: an abort is one rank's own, but that other hosts lose connections") {
  for (const bool on_one_host : {true, false}) {
    const Environment environment =
        on_one_host ? Environment{} : Environment{{"NCCL_HOSTID", "node-%r"}};
    EmulatedRanks ranks(2, environment, [on_one_host](const Child& child, const NcclRank& rank) {
      NcclComm* const comm = rank.Join();
      const CUstream stream = child.NewStream();
      if (rank.rank() == 0) {
        RANK_OK(rank.Sum(comm, child.NewMemory(4), 1, stream));
      } else {
        RANK_OK(rank.nccl().ncclCommAbort(comm));
      }
      rank.Meet();
      if (rank.rank() == 0 && on_one_host) {
        rank.Pause();
        RANK_OK(rank.State(comm));
        CHILD_CHECK(!child.IsDone(stream));
      } else if (rank.rank() == 0) {
        child.WaitUntil([&] { return rank.State(comm) == kNcclRemoteError; }, "the loss");
      }
      rank.Meet();
    });
    ranks.Meet();
    ranks.Meet();
    CHECK(ranks.Join() == "");
  }
}

TEST_CASE("Emulated NCCL: after an error a communicator can only be aborted") {
  EmulatedRanks ranks(
      2, {{"RINGD_EMULATOR_NCCL_FAULTS", "error@1:2=3"}},
      [](const Child& child, const NcclRank& rank) {
        NcclComm* const comm = rank.Join();
        const CUstream stream = child.NewStream();
        const CUdeviceptr memory = child.NewMemory(4);
        RANK_OK(rank.Sum(comm, memory, 1, stream));
        CHILD_OK(child.cuda().cuStreamSynchronize(stream));
        RANK_OK(rank.Sum(comm, memory, 1, stream));
        if (rank.rank() == 1) {
          child.WaitUntil([&] { return rank.State(comm) != kNcclSuccess; }, "the error");
          RANK_NCCL(kNcclInternalError, rank.State(comm));
          RANK_NCCL(kNcclInternalError, rank.Sum(comm, memory, 1, stream));
        }
        rank.Meet();
        RANK_NCCL(rank.rank() == 1 ? kNcclInternalError : kNcclSuccess, rank.State(comm));
        CHILD_CHECK(!child.IsDone(stream));
        RANK_OK(rank.nccl().ncclCommAbort(comm));
        CHILD_OK(child.cuda().cuStreamSynchronize(stream));
      });
  ranks.Meet();
  CHECK(ranks.Join() == "");
}

TEST_CASE("Emulated NCCL: an abort returns when the GPU has nothing to do for its process") {
  CHECK(RunRanks(1, {}, [](const Child& child, const NcclRank& rank) {
          NcclComm* const comm = rank.Join();
          // A stream that has nothing to do with the communicator.
          const CUstream stream = child.NewStream();
          const CUdeviceptr gate = child.NewMemory(8);
          auto* const seen = static_cast<std::uint64_t*>(child.emulator().alias(gate, 8));
          CHILD_OK(child.cuda().cuStreamWaitValue64(stream, gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
          static std::atomic<bool> aborted{false};
          std::thread([&rank, comm] {
            rank.nccl().ncclCommAbort(comm);
            aborted = true;
          }).detach();
          rank.Pause();
          CHILD_CHECK(!aborted);
          __atomic_store_n(seen, 1, __ATOMIC_RELEASE);
          child.WaitUntil([] { return aborted.load(); }, "the abort");
        }) == "");
}

TEST_CASE("Emulated NCCL: an error of CUDA's on the stream is the communicator's") {
  CHECK(RunRanks(1, {{"RINGD_EMULATOR_NCCL_FAULTS", "hang@0:1"}},
                 [](const Child& child, const NcclRank& rank) {
                   NcclComm* const comm = rank.Join();
                   RANK_OK(rank.Sum(comm, child.NewMemory(4), 1, child.NewStream()));
                   child.emulator().fail_device(0, CUDA_ERROR_ECC_UNCORRECTABLE);
                   child.WaitUntil([&] { return rank.State(comm) == kNcclUnhandledCudaError; },
                                   "the error");
                 }) == "");
}

TEST_CASE("Emulated NCCL, faults: a rank hangs in the collective that is named, and no other") {
  EmulatedRanks ranks(2, {{"RINGD_EMULATOR_NCCL_FAULTS", "hang@1:2"}},
                      [](const Child& child, const NcclRank& rank) {
                        NcclComm* const comm = rank.Join();
                        const CUstream stream = child.NewStream();
                        const CUdeviceptr memory = rank.Floats({1});
                        RANK_OK(rank.Sum(comm, memory, 1, stream));
                        CHILD_OK(child.cuda().cuStreamSynchronize(stream));
                        RANK_OK(rank.Sum(comm, memory, 1, stream));
                        rank.Meet();
                        rank.Pause();
                        RANK_OK(rank.State(comm));
                        CHILD_CHECK(!child.IsDone(stream));
                        CHILD_CHECK(rank.ReadFloats(memory, 1) == std::vector<float>({2}));
                        rank.Meet();
                      });
  ranks.Meet();
  ranks.Meet();
  CHECK(ranks.Join() == "");
}

TEST_CASE("Emulated NCCL, faults: a slow rank makes all wait in each of its collectives") {
  CHECK(RunRanks(2, {{"RINGD_EMULATOR_NCCL_FAULTS", "slow@1:*=150000"}},
                 [](const Child& child, const NcclRank& rank) {
                   NcclComm* const comm = rank.Join();
                   const CUstream stream = child.NewStream();
                   const CUdeviceptr memory = rank.Floats({1});
                   const Clock::time_point begin = Clock::now();
                   RANK_OK(rank.Sum(comm, memory, 1, stream));
                   RANK_OK(rank.Sum(comm, memory, 1, stream));
                   CHILD_OK(child.cuda().cuStreamSynchronize(stream));
                   CHILD_CHECK(Clock::now() - begin >= std::chrono::milliseconds(290));
                   CHILD_CHECK(rank.ReadFloats(memory, 1) == std::vector<float>({4}));
                 }) == "");
}

TEST_CASE("Emulated NCCL, faults: a communicator fails, or hangs, where it is made") {
  for (const std::string fault : {"error@1:init=2", "hang@1:init"}) {
    const NcclResult expected = fault[0] == 'e' ? kNcclSystemError : kNcclInProgress;
    EmulatedRanks ranks(
        2, {{"RINGD_EMULATOR_NCCL_FAULTS", fault}},
        [expected](const Child& child, const NcclRank& rank) {
          NcclComm* const comm = rank.BeginJoin();
          rank.Meet();
          if (rank.rank() == 1 && expected != kNcclInProgress) {
            child.WaitUntil([&] { return rank.State(comm) == expected; }, "the error");
          }
          rank.Pause();
          RANK_NCCL(rank.rank() == 1 ? expected : kNcclInProgress, rank.State(comm));
          RANK_OK(rank.nccl().ncclCommAbort(comm));
          rank.Meet();
        });
    ranks.Meet();
    ranks.Meet();
    CHECK(ranks.Join() == "");
  }
}

TEST_CASE("Emulated NCCL, faults: settings that make no sense end the process") {
  for (const std::string fault : {"explode@0:1", "error@0:1", "hang@0:1=5", "hang@zero:1"}) {
    INFO(fault);
    // Before it has an id for the others: so there are none.
    CHECK(EmulatedProcess({}, [&fault](const Child& child) {
            ::setenv("RINGD_EMULATOR_NCCL_FAULTS", fault.c_str(), 1);
            const NcclRank rank(child, 0, 1);
          }).Join() == "killed by signal 6");
  }
}

}  // namespace
}  // namespace ringd::emulator
