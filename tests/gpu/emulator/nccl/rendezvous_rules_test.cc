// Rules about how a communicator is made, and what its handle is. README.md names the documents.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/gpu/emulator/nccl/emulated_ranks.h"

namespace ringd::emulator {
namespace {

TEST_CASE("Emulated NCCL: an id makes one communicator of ranks in several processes") {
  for (const bool is_blocking : {true, false}) {
    EmulatedRanks ranks(3, {}, [is_blocking](const Child& child, const NcclRank& rank) {
      NcclComm* const comm = rank.Join(is_blocking);
      int number = -1;
      RANK_OK(rank.nccl().ncclCommCount(comm, &number));
      CHILD_CHECK(number == 3);
      RANK_OK(rank.nccl().ncclCommUserRank(comm, &number));
      CHILD_CHECK(number == rank.rank());
      RANK_OK(rank.nccl().ncclCommCuDevice(comm, &number));
      CHILD_CHECK(number == rank.rank());
      rank.Meet();
    });
    ranks.Meet();
    CHECK(ranks.Join() == "");
  }
}

TEST_CASE("Emulated NCCL: who does not come keeps the others waiting, until they abort") {
  EmulatedRanks ranks(2, {}, [](const Child& child, const NcclRank& rank) {
    if (rank.rank() == 0) {
      NcclComm* const comm = rank.BeginJoin();
      rank.Pause();
      CHILD_CHECK(rank.State(comm) == kNcclInProgress);
      RANK_OK(rank.nccl().ncclCommAbort(comm));
    }
    rank.Meet();
  });
  ranks.Meet();
  CHECK(ranks.Join() == "");
}

TEST_CASE("Emulated NCCL: ranks that disagree about their number, or are there twice, wait") {
  struct Case {
    int size, rank;
  };
  for (const Case second : {Case{3, 1}, Case{2, 0}}) {
    EmulatedRanks ranks(2, {}, [second](const Child& child, const NcclRank& rank) {
      NcclComm* comm = nullptr;
      NcclConfig config;
      config.blocking = 0;
      const Case mine = rank.rank() == 0 ? Case{2, 0} : second;
      RANK_NCCL(kNcclInProgress, rank.nccl().ncclCommInitRankConfig(&comm, mine.size, rank.id(),
                                                                    mine.rank, &config));
      rank.Meet();
      rank.Pause();
      CHILD_CHECK(rank.State(comm) == kNcclInProgress);
      rank.Meet();
    });
    ranks.Meet();
    ranks.Meet();
    CHECK(ranks.Join() == "");
  }
}

TEST_CASE("Emulated NCCL: an id ends with the process that made it") {
  EmulatedRanks ranks(2, {}, [](const Child& child, const NcclRank& rank) {
    if (rank.rank() == 0) return;
    child.Receive();
    NcclComm* comm = nullptr;
    RANK_NCCL(kNcclRemoteError,
              rank.nccl().ncclCommInitRankConfig(&comm, 2, rank.id(), 1, nullptr));
    CHILD_CHECK(comm == nullptr);
  });
  CHECK(ranks[0].Join() == "");
  ranks[1].Send(1);
  CHECK(ranks[1].Join() == "");
}

TEST_CASE("Emulated NCCL: an id serves once") {
  CHECK(RunRanks(1, {}, [](const Child&, const NcclRank& rank) {
          rank.Join();
          NcclComm* comm = nullptr;
          RANK_NCCL(kNcclRemoteError,
                    rank.nccl().ncclCommInitRankConfig(&comm, 1, rank.id(), 0, nullptr));
        }) == "");
}

TEST_CASE("Emulated NCCL: ranks, ids and configurations that can't be are refused") {
  CHECK(RunRanks(1, {}, [](const Child&, const NcclRank& rank) {
          const NcclApi& nccl = rank.nccl();
          NcclComm* comm = nullptr;
          const auto init = [&](int size, int number, NcclUniqueId id, NcclConfig* config) {
            return nccl.ncclCommInitRankConfig(&comm, size, id, number, config);
          };
          RANK_NCCL(kNcclInvalidArgument, init(0, 0, rank.id(), nullptr));
          RANK_NCCL(kNcclInvalidArgument, init(1, 1, rank.id(), nullptr));
          RANK_NCCL(kNcclInvalidArgument, init(1, -1, rank.id(), nullptr));
          RANK_NCCL(kNcclInvalidArgument, init(1, 0, NcclUniqueId{}, nullptr));
          NcclConfig config;
          config.magic = 0;  // as of one that NCCL_CONFIG_INITIALIZER has not made
          RANK_NCCL(kNcclInvalidArgument, init(1, 0, rank.id(), &config));
          config = NcclConfig();
          config.blocking = 2;
          RANK_NCCL(kNcclInvalidArgument, init(1, 0, rank.id(), &config));
          RANK_NCCL(kNcclInvalidArgument,
                    nccl.ncclCommInitRankConfig(nullptr, 1, rank.id(), 0, nullptr));
          RANK_NCCL(kNcclInvalidArgument, nccl.ncclGetUniqueId(nullptr));
        }) == "");
}

TEST_CASE("Emulated NCCL: two ranks on one GPU are refused, but where NCCL is told otherwise") {
  // How it ends where both use the same GPU.
  const auto share = [](const Environment& environment, NcclResult expected) {
    EmulatedRanks ranks(2, environment, [expected](const Child& child, const NcclRank& rank) {
      child.UseDevice(0);
      NcclComm* comm = nullptr;
      RANK_NCCL(expected,
                rank.nccl().ncclCommInitRankConfig(&comm, 2, rank.id(), rank.rank(), nullptr));
      rank.Meet();
    });
    ranks.Meet();
    return ranks.Join();
  };
  CHECK(share({}, kNcclInvalidUsage) == "");
  CHECK(share({{"NCCL_HOSTID", "node-%r"}}, kNcclSuccess) == "");
  CHECK(share({{"NCCL_MULTI_RANK_GPU_ENABLE", "1"}}, kNcclSuccess) == "");
}

TEST_CASE("Emulated NCCL: a communicator in progress can't be used, but to ask and to abort") {
  EmulatedRanks ranks(2, {}, [](const Child& child, const NcclRank& rank) {
    if (rank.rank() == 1) rank.Meet();
    NcclComm* const comm = rank.BeginJoin();
    if (rank.rank() == 0) {
      int count = 0;
      const CUdeviceptr memory = child.NewMemory(4);
      RANK_NCCL(kNcclInvalidArgument, rank.nccl().ncclCommCount(comm, &count));
      RANK_NCCL(kNcclInvalidArgument, rank.Sum(comm, memory, 1, child.NewStream()));
      RANK_NCCL(kNcclInvalidArgument, rank.nccl().ncclCommFinalize(comm));
      RANK_NCCL(kNcclInvalidArgument, rank.nccl().ncclCommDestroy(comm));
      rank.Meet();
    }
    rank.WaitReady(comm);
    rank.Meet();
  });
  ranks.Meet();
  ranks.Meet();
  CHECK(ranks.Join() == "");
}

TEST_CASE("Emulated NCCL: a handle is good until it is destroyed or aborted") {
  CHECK(RunRanks(1, {}, [](const Child& child, const NcclRank& rank) {
          const NcclApi& nccl = rank.nccl();
          NcclComm* const comm = rank.Join();
          RANK_OK(nccl.ncclCommDestroy(comm));
          int count = 0;
          NcclResult state = kNcclSuccess;
          RANK_NCCL(kNcclInvalidArgument, nccl.ncclCommCount(comm, &count));
          RANK_NCCL(kNcclInvalidArgument, nccl.ncclCommGetAsyncError(comm, &state));
          RANK_NCCL(kNcclInvalidArgument, nccl.ncclCommDestroy(comm));
          RANK_NCCL(kNcclInvalidArgument, nccl.ncclCommAbort(comm));
          RANK_NCCL(kNcclInvalidArgument, rank.Sum(comm, child.NewMemory(4), 1, child.NewStream()));
        }) == "");
}

}  // namespace
}  // namespace ringd::emulator
