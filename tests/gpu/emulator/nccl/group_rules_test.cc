// Rules about groups of calls, communicators that are split, and their end. README.md names the
// documents.
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/emulator/nccl/emulated_ranks.h"

namespace ringd::emulator {
namespace {

using Values = std::vector<float>;

TEST_CASE("Emulated NCCL: a group's end needs its begin") {
  CHECK(RunRanks(1, {}, [](const Child&, const NcclRank& rank) {
          RANK_NCCL(kNcclInvalidUsage, rank.nccl().ncclGroupEnd());
          RANK_OK(rank.nccl().ncclGroupStart());
          RANK_OK(rank.nccl().ncclGroupEnd());
          RANK_NCCL(kNcclInvalidUsage, rank.nccl().ncclGroupEnd());
        }) == "");
}

TEST_CASE("Emulated NCCL: nothing is launched before the outermost group ends") {
  CHECK(RunRanks(2, {}, [](const Child& child, const NcclRank& rank) {
          const NcclApi& nccl = rank.nccl();
          NcclComm* const comm = rank.Join();
          const CUstream stream = child.NewStream();
          const CUdeviceptr memory = rank.Floats({1});
          RANK_OK(nccl.ncclGroupStart());
          RANK_OK(nccl.ncclGroupStart());
          RANK_OK(rank.Sum(comm, memory, 1, stream));
          RANK_OK(nccl.ncclGroupEnd());
          rank.Pause();
          CHILD_CHECK(child.IsDone(stream));
          CHILD_CHECK(rank.ReadFloats(memory, 1) == Values({1}));
          RANK_OK(nccl.ncclGroupEnd());
          CHILD_OK(child.cuda().cuStreamSynchronize(stream));
          CHILD_CHECK(rank.ReadFloats(memory, 1) == Values({2}));
        }) == "");
}

TEST_CASE("Emulated NCCL: a group with a call that is wrong ends with its error, and runs none") {
  CHECK(RunRanks(1, {}, [](const Child& child, const NcclRank& rank) {
          const NcclApi& nccl = rank.nccl();
          NcclComm* const comm = rank.Join();
          const CUstream stream = child.NewStream();
          const CUdeviceptr memory = rank.Floats({1});
          RANK_OK(nccl.ncclGroupStart());
          RANK_OK(nccl.ncclMemFree(nullptr));
          NcclRedOp op{};
          float factor = 3;
          RANK_OK(nccl.ncclRedOpCreatePreMulSum(&op, &factor, kNcclFloat32,
                                                kNcclScalarHostImmediate, comm));
          RANK_OK(nccl.ncclAllReduce(Pointer(memory), Pointer(memory), 1, kNcclFloat32, op, comm,
                                     Stream(stream)));
          RANK_NCCL(kNcclInvalidArgument,
                    nccl.ncclBroadcast(Pointer(memory), Pointer(memory), 1, kNcclFloat32, 7, comm,
                                       Stream(stream)));
          RANK_NCCL(kNcclInvalidArgument, nccl.ncclGroupEnd());
          CHILD_OK(child.cuda().cuStreamSynchronize(stream));
          CHILD_CHECK(rank.ReadFloats(memory, 1) == Values({1}));
        }) == "");
}

// Makes the communicators of two ranks on one thread.
void JoinTwice(const Child& child, const NcclRank& rank, NcclComm* (&comms)[2]) {
  for (int device = 0; device < 2; ++device) {
    child.UseDevice(device);
    RANK_OK(rank.nccl().ncclCommInitRankConfig(&comms[device], 2, rank.id(), device, nullptr));
  }
}

const Environment kTwoDevices = {{"RINGD_EMULATOR_CUDA_DEVICES", "2"}};

TEST_CASE("Emulated NCCL: one thread makes several ranks in a group") {
  CHECK(RunRanks(1, kTwoDevices, [](const Child& child, const NcclRank& rank) {
          NcclComm* comms[2] = {};
          RANK_OK(rank.nccl().ncclGroupStart());
          JoinTwice(child, rank, comms);
          RANK_OK(rank.nccl().ncclGroupEnd());
          int number = 0;
          RANK_OK(rank.nccl().ncclCommUserRank(comms[1], &number));
          CHILD_CHECK(number == 1);
        }) == "");
}

TEST_CASE("Emulated NCCL: without a group the first of several ranks of a thread waits") {
  CHECK(RunRanks(1, kTwoDevices, [](const Child& child, const NcclRank& rank) {
          std::atomic<bool> is_done{false};
          std::thread([&] {
            NcclComm* comms[2] = {};
            JoinTwice(child, rank, comms);
            is_done = true;
          }).detach();
          rank.Pause();
          CHILD_CHECK(!is_done);
          ::_exit(0);
        }) == "");
}

TEST_CASE("Emulated NCCL: a group has no communicators of both kinds") {
  CHECK(RunRanks(1, {}, [](const Child& child, const NcclRank& rank) {
          const NcclApi& nccl = rank.nccl();
          NcclComm* const blocking = rank.Join();
          NcclUniqueId id{};
          NcclConfig config;
          config.blocking = 0;
          NcclComm* other = nullptr;
          RANK_OK(nccl.ncclGetUniqueId(&id));
          RANK_NCCL(kNcclInProgress, nccl.ncclCommInitRankConfig(&other, 1, id, 0, &config));
          rank.WaitReady(other);
          const CUstream stream = child.NewStream();
          const CUdeviceptr memory = child.NewMemory(4);
          RANK_OK(nccl.ncclGroupStart());
          RANK_OK(rank.Sum(blocking, memory, 1, stream));
          RANK_OK(rank.Sum(other, memory, 1, stream));
          RANK_NCCL(kNcclInvalidArgument, nccl.ncclGroupEnd());
        }) == "");
}

TEST_CASE("Emulated NCCL: a split is by color, its ranks are in the order of keys") {
  CHECK(RunRanks(4, {}, [](const Child& child, const NcclRank& rank) {
          const NcclApi& nccl = rank.nccl();
          NcclComm* const comm = rank.Join();
          NcclComm* half = nullptr;
          RANK_OK(nccl.ncclCommSplit(comm, rank.rank() % 2, -rank.rank(), &half, nullptr));
          int number = 0;
          RANK_OK(nccl.ncclCommCount(half, &number));
          CHILD_CHECK(number == 2);
          RANK_OK(nccl.ncclCommUserRank(half, &number));
          CHILD_CHECK(number == (rank.rank() < 2 ? 1 : 0));
          const CUstream stream = child.NewStream();
          const CUdeviceptr memory = rank.Floats({static_cast<float>(rank.rank())});
          RANK_OK(rank.Sum(half, memory, 1, stream));
          CHILD_OK(child.cuda().cuStreamSynchronize(stream));
          CHILD_CHECK(rank.ReadFloats(memory, 1)[0] == (rank.rank() % 2 == 0 ? 2.0F : 4.0F));
        }) == "");
}

TEST_CASE("Emulated NCCL: who gives no color gets no communicator; a negative one is none") {
  CHECK(RunRanks(2, {}, [](const Child& child, const NcclRank& rank) {
          const NcclApi& nccl = rank.nccl();
          NcclComm* const comm = rank.Join();
          NcclComm* part = comm;
          RANK_NCCL(kNcclInvalidArgument, nccl.ncclCommSplit(comm, -2, 0, &part, nullptr));
          const int color = rank.rank() == 0 ? kNcclSplitNoColor : 5;
          RANK_OK(nccl.ncclCommSplit(comm, color, 0, &part, nullptr));
          CHILD_CHECK((part == nullptr) == (rank.rank() == 0));
        }) == "");
}

TEST_CASE("Emulated NCCL: a split waits for all ranks, and its parent is busy meanwhile") {
  EmulatedRanks ranks(2, {}, [](const Child& child, const NcclRank& rank) {
    const NcclApi& nccl = rank.nccl();
    NcclComm* const comm = rank.Join(false);
    NcclComm* part = nullptr;
    if (rank.rank() == 1) rank.Meet();
    RANK_NCCL(kNcclInProgress, nccl.ncclCommSplit(comm, 0, rank.rank(), &part, nullptr));
    if (rank.rank() == 0) {
      rank.Pause();
      CHILD_CHECK(rank.State(part) == kNcclInProgress);
      CHILD_CHECK(rank.State(comm) == kNcclInProgress);
      RANK_NCCL(kNcclInvalidArgument, rank.Sum(comm, child.NewMemory(4), 1, child.NewStream()));
      rank.Meet();
    }
    rank.WaitReady(part);
    rank.WaitReady(comm);
    rank.Meet();
  });
  ranks.Meet();
  ranks.Meet();
  CHECK(ranks.Join() == "");
}

TEST_CASE("Emulated NCCL: a launch on a communicator that does not block is in progress first") {
  CHECK(RunRanks(2, {{"RINGD_EMULATOR_NCCL_MAX_DELAY_US", "20000"}},
                 [](const Child& child, const NcclRank& rank) {
                   NcclComm* const comm = rank.Join(false);
                   const CUstream stream = child.NewStream();
                   const CUdeviceptr memory = rank.Floats({1});
                   RANK_NCCL(kNcclInProgress, rank.Sum(comm, memory, 1, stream));
                   rank.WaitReady(comm);
                   CHILD_OK(child.cuda().cuStreamSynchronize(stream));
                   CHILD_CHECK(rank.ReadFloats(memory, 1) == Values({2}));
                 }) == "");
}

TEST_CASE("Emulated NCCL: finalizing waits for what is in flight, and takes nothing new") {
  EmulatedRanks ranks(2, {}, [](const Child& child, const NcclRank& rank) {
    const NcclApi& nccl = rank.nccl();
    NcclComm* const comm = rank.Join(false);
    const CUstream stream = child.NewStream();
    const CUdeviceptr gate = child.NewMemory(8);
    CHILD_OK(child.cuda().cuStreamWaitValue64(stream, gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
    RANK_NCCL(kNcclInProgress, rank.Sum(comm, child.NewMemory(4), 1, stream));
    rank.WaitReady(comm);
    RANK_NCCL(kNcclInProgress, nccl.ncclCommFinalize(comm));
    rank.Pause();
    CHILD_CHECK(rank.State(comm) == kNcclInProgress);
    rank.Meet();
    CHILD_OK(child.cuda().cuStreamWriteValue64(child.NewStream(), gate, 1, 0));
    rank.WaitReady(comm);
    CHILD_CHECK(child.IsDone(stream));
    RANK_NCCL(kNcclInvalidUsage, rank.Sum(comm, child.NewMemory(4), 1, stream));
    RANK_NCCL(kNcclInvalidArgument, nccl.ncclCommFinalize(comm));
    RANK_OK(nccl.ncclCommDestroy(comm));
  });
  ranks.Meet();
  CHECK(ranks.Join() == "");
}

}  // namespace
}  // namespace ringd::emulator
