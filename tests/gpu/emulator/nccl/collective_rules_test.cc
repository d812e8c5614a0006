// Rules about collectives. README.md names the documents.
#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "tests/gpu/emulator/nccl/emulated_ranks.h"

namespace ringd::emulator {
namespace {

using Values = std::vector<float>;

TEST_CASE("Emulated NCCL: an all-reduce has each operator, over more than one piece") {
  CHECK(RunRanks(3, {}, [](const Child& child, const NcclRank& rank) {
          constexpr std::size_t kCount = 40'000;
          NcclComm* const comm = rank.Join();
          const CUstream stream = child.NewStream();
          const auto mine = static_cast<float>(rank.rank() + 1);
          const CUdeviceptr source = rank.Floats(Values(kCount, mine));
          const CUdeviceptr target = child.NewMemory(kCount * sizeof(float));
          struct Case {
            NcclRedOp op;
            float result;
          };
          for (const Case one : {Case{kNcclSum, 6}, Case{kNcclProduct, 6}, Case{kNcclMax, 3},
                                 Case{kNcclMin, 1}, Case{kNcclAverage, 2}}) {
            RANK_OK(rank.nccl().ncclAllReduce(Pointer(source), Pointer(target), kCount,
                                              kNcclFloat32, one.op, comm, Stream(stream)));
            CHILD_OK(child.cuda().cuStreamSynchronize(stream));
            CHILD_CHECK(rank.ReadFloats(target, kCount) == Values(kCount, one.result));
          }
          CHILD_CHECK(rank.ReadFloats(source, kCount) == Values(kCount, mine));
        }) == "");
}

TEST_CASE("Emulated NCCL: an all-reduce has each type of data") {
  struct Case {
    NcclDataType type;
    std::size_t bytes;
    std::uint64_t one, two;
  };
  static constexpr Case kCases[] = {
      {kNcclInt8, 1, 1, 2},
      {kNcclUint8, 1, 1, 2},
      {kNcclInt32, 4, 1, 2},
      {kNcclUint32, 4, 1, 2},
      {kNcclInt64, 8, 1, 2},
      {kNcclUint64, 8, 1, 2},
      {kNcclFloat16, 2, 0x3c00, 0x4000},
      {kNcclFloat32, 4, 0x3f800000, 0x40000000},
      {kNcclFloat64, 8, 0x3ff0000000000000, 0x4000000000000000},
      {kNcclBfloat16, 2, 0x3f80, 0x4000},
      {kNcclFloat8E4M3, 1, 0x38, 0x40},
      {kNcclFloat8E5M2, 1, 0x3c, 0x40},
  };
  CHECK(RunRanks(2, {}, [](const Child& child, const NcclRank& rank) {
          NcclComm* const comm = rank.Join();
          const CUstream stream = child.NewStream();
          const CUdeviceptr memory = child.NewMemory(8);
          for (const Case& one : kCases) {
            void* const alias = child.emulator().alias(memory, 8);
            std::memset(alias, 0, 8);
            std::memcpy(alias, &one.one, one.bytes);
            RANK_OK(rank.nccl().ncclAllReduce(Pointer(memory), Pointer(memory), 1, one.type,
                                              kNcclSum, comm, Stream(stream)));
            CHILD_OK(child.cuda().cuStreamSynchronize(stream));
            CHILD_CHECK(child.Read(memory) == one.two);
          }
        }) == "");
}

TEST_CASE("Emulated NCCL: float8 is reduced from compute capability 9.0 on") {
  const Environment older = {{"RINGD_EMULATOR_CUDA_COMPUTE_MAJOR", "8"}};
  CHECK(RunRanks(1, older, [](const Child& child, const NcclRank& rank) {
          NcclComm* const comm = rank.Join();
          void* const memory = Pointer(child.NewMemory(8));
          NcclStream* const stream = Stream(child.NewStream());
          for (const NcclDataType type : {kNcclFloat8E4M3, kNcclFloat8E5M2}) {
            RANK_NCCL(kNcclInvalidArgument,
                      rank.nccl().ncclAllReduce(memory, memory, 8, type, kNcclSum, comm, stream));
            RANK_OK(rank.nccl().ncclBroadcast(memory, memory, 8, type, 0, comm, stream));
          }
          RANK_OK(rank.nccl().ncclAllReduce(memory, memory, 8, kNcclUint8, kNcclSum, comm, stream));
        }) == "");
}

TEST_CASE("Emulated NCCL: counts are of one rank's part, and parts lie in the order of ranks") {
  CHECK(RunRanks(3, {}, [](const Child& child, const NcclRank& rank) {
          const NcclApi& nccl = rank.nccl();
          NcclComm* const comm = rank.Join();
          const CUstream stream = child.NewStream();
          const auto mine = static_cast<float>(rank.rank());
          const CUdeviceptr part = rank.Floats({mine, mine + 10});
          const CUdeviceptr whole = rank.Floats(Values(6, 0));
          RANK_OK(nccl.ncclAllGather(Pointer(part), Pointer(whole), 2, kNcclFloat32, comm,
                                     Stream(stream)));
          CHILD_OK(child.cuda().cuStreamSynchronize(stream));
          CHILD_CHECK(rank.ReadFloats(whole, 6) == Values({0, 10, 1, 11, 2, 12}));
          RANK_OK(nccl.ncclReduceScatter(Pointer(whole), Pointer(part), 2, kNcclFloat32, kNcclSum,
                                         comm, Stream(stream)));
          CHILD_OK(child.cuda().cuStreamSynchronize(stream));
          CHILD_CHECK(rank.ReadFloats(part, 2) == Values({3 * mine, 3 * (mine + 10)}));
          RANK_OK(nccl.ncclBroadcast(Pointer(part), Pointer(part), 2, kNcclFloat32, 2, comm,
                                     Stream(stream)));
          CHILD_OK(child.cuda().cuStreamSynchronize(stream));
          CHILD_CHECK(rank.ReadFloats(part, 2) == Values({6, 36}));
        }) == "");
}

TEST_CASE("Emulated NCCL: a sum with a factor takes it at once, or from memory when it runs") {
  CHECK(RunRanks(2, {}, [](const Child& child, const NcclRank& rank) {
          const NcclApi& nccl = rank.nccl();
          NcclComm* const comm = rank.Join();
          const CUstream stream = child.NewStream();
          float factor = 0.5;
          const CUdeviceptr on_device = rank.Floats({0});
          NcclRedOp at_once{};
          NcclRedOp later{};
          RANK_OK(nccl.ncclRedOpCreatePreMulSum(&at_once, &factor, kNcclFloat32,
                                                kNcclScalarHostImmediate, comm));
          RANK_OK(nccl.ncclRedOpCreatePreMulSum(&later, Pointer(on_device), kNcclFloat32,
                                                kNcclScalarDevice, comm));
          factor = 100;
          const auto reduce = [&](NcclRedOp op) {
            const CUdeviceptr memory = rank.Floats({8});
            RANK_OK(nccl.ncclAllReduce(Pointer(memory), Pointer(memory), 1, kNcclFloat32, op, comm,
                                       Stream(stream)));
            CHILD_OK(child.cuda().cuStreamSynchronize(stream));
            return rank.ReadFloats(memory, 1)[0];
          };
          CHILD_CHECK(reduce(at_once) == 8);
          const unsigned bits = 0x3e800000;  // 0.25
          CHILD_OK(child.cuda().cuMemsetD32Async(on_device, bits, 1, stream));
          CHILD_CHECK(reduce(later) == 4);
        }) == "");
}

TEST_CASE("Emulated NCCL: an operator is one communicator's, for one type, until destroyed") {
  CHECK(RunRanks(1, {}, [](const Child& child, const NcclRank& rank) {
          const NcclApi& nccl = rank.nccl();
          NcclComm* const comm = rank.Join();
          NcclUniqueId id{};
          NcclComm* other = nullptr;
          RANK_OK(nccl.ncclGetUniqueId(&id));
          RANK_OK(nccl.ncclCommInitRankConfig(&other, 1, id, 0, nullptr));
          float factor = 2;
          NcclRedOp op{};
          RANK_OK(nccl.ncclRedOpCreatePreMulSum(&op, &factor, kNcclFloat32,
                                                kNcclScalarHostImmediate, comm));
          void* const memory = Pointer(child.NewMemory(8));
          NcclStream* const stream = Stream(child.NewStream());
          const auto reduce = [&](NcclComm* with, NcclDataType type) {
            return nccl.ncclAllReduce(memory, memory, 1, type, op, with, stream);
          };
          RANK_OK(reduce(comm, kNcclFloat32));
          RANK_NCCL(kNcclInvalidArgument, reduce(comm, kNcclFloat64));
          RANK_NCCL(kNcclInvalidArgument, reduce(other, kNcclFloat32));
          RANK_NCCL(kNcclInvalidArgument, nccl.ncclRedOpDestroy(op, other));
          RANK_OK(nccl.ncclRedOpDestroy(op, comm));
          RANK_NCCL(kNcclInvalidArgument, reduce(comm, kNcclFloat32));
        }) == "");
}

TEST_CASE("Emulated NCCL: types, operators and roots that are not there are refused") {
  CHECK(RunRanks(1, {}, [](const Child& child, const NcclRank& rank) {
          const NcclApi& nccl = rank.nccl();
          NcclComm* const comm = rank.Join();
          void* const memory = Pointer(child.NewMemory(8));
          NcclStream* const stream = Stream(child.NewStream());
          RANK_NCCL(kNcclInvalidArgument,
                    nccl.ncclAllReduce(memory, memory, 1, static_cast<NcclDataType>(77), kNcclSum,
                                       comm, stream));
          RANK_NCCL(kNcclInvalidArgument,
                    nccl.ncclAllReduce(memory, memory, 1, kNcclFloat32, static_cast<NcclRedOp>(-1),
                                       comm, stream));
          RANK_NCCL(kNcclInvalidArgument,
                    nccl.ncclBroadcast(memory, memory, 1, kNcclFloat32, 1, comm, stream));
        }) == "");
}

TEST_CASE("Emulated NCCL: a collective waits for its stream's turn, and keeps no other waiting") {
  CHECK(RunRanks(2, {}, [](const Child& child, const NcclRank& rank) {
          NcclComm* const comm = rank.Join();
          const CUstream stream = child.NewStream();
          const CUstream other = child.NewStream();
          const CUdeviceptr gate = child.NewMemory(8);
          const CUdeviceptr memory = rank.Floats({1});
          CHILD_OK(child.cuda().cuStreamWaitValue64(stream, gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
          RANK_OK(rank.Sum(comm, memory, 1, stream));
          rank.Pause();
          CHILD_CHECK(!child.IsDone(stream));
          CHILD_CHECK(rank.ReadFloats(memory, 1) == Values({1}));
          CHILD_OK(child.cuda().cuStreamWriteValue64(other, gate, 1, 0));
          CHILD_OK(child.cuda().cuStreamSynchronize(stream));
          CHILD_CHECK(rank.ReadFloats(memory, 1) == Values({2}));
        }) == "");
}

// Launches what `launch` says on a stream of each rank, sees it hang without an error, and aborts.
void CheckHangs(
    const std::function<void(const Child&, const NcclRank&, NcclComm*, CUstream)>& launch) {
  EmulatedRanks ranks(2, {}, [&launch](const Child& child, const NcclRank& rank) {
    NcclComm* const comm = rank.Join();
    const CUstream stream = child.NewStream();
    launch(child, rank, comm, stream);
    rank.Meet();
    rank.Pause();
    CHILD_CHECK(!child.IsDone(stream));
    CHILD_CHECK(rank.State(comm) == kNcclSuccess);
    rank.Meet();
    RANK_OK(rank.nccl().ncclCommAbort(comm));
    CHILD_OK(child.cuda().cuStreamSynchronize(stream));
  });
  ranks.Meet();
  ranks.Meet();
  CHECK(ranks.Join() == "");
}

TEST_CASE("Emulated NCCL: ranks with different sizes hang, without an error") {
  CheckHangs([](const Child& child, const NcclRank& rank, NcclComm* comm, CUstream stream) {
    const std::size_t count = rank.rank() == 0 ? 1 : 2;
    RANK_OK(rank.Sum(comm, child.NewMemory(8), count, stream));
  });
}

TEST_CASE("Emulated NCCL: ranks with different orders hang, without an error") {
  CheckHangs([](const Child& child, const NcclRank& rank, NcclComm* comm, CUstream stream) {
    void* const memory = Pointer(child.NewMemory(8));
    for (int i = 0; i < 2; ++i) {
      if (i == rank.rank()) {
        RANK_OK(
            rank.nccl().ncclBroadcast(memory, memory, 1, kNcclFloat32, 0, comm, Stream(stream)));
      } else {
        RANK_OK(rank.nccl().ncclAllReduce(memory, memory, 1, kNcclFloat32, kNcclSum, comm,
                                          Stream(stream)));
      }
    }
  });
}

TEST_CASE("Emulated NCCL: two communicators on one GPU are launched in one order everywhere") {
  for (const bool in_one_order : {true, false}) {
    EmulatedRanks ranks(2, {}, [in_one_order](const Child& child, const NcclRank& rank) {
      NcclComm* comms[2] = {rank.Join(), nullptr};
      RANK_OK(rank.nccl().ncclCommSplit(comms[0], 0, rank.rank(), &comms[1], nullptr));
      const CUstream streams[2] = {child.NewStream(), child.NewStream()};
      const bool is_swapped = !in_one_order && rank.rank() == 1;
      for (const int i : {is_swapped ? 1 : 0, is_swapped ? 0 : 1}) {
        RANK_OK(rank.Sum(comms[i], child.NewMemory(4), 1, streams[i]));
      }
      rank.Meet();
      if (in_one_order) {
        CHILD_OK(child.cuda().cuCtxSynchronize());
      } else {
        rank.Pause();
        CHILD_CHECK(!child.IsDone(streams[0]) && !child.IsDone(streams[1]));
      }
      rank.Meet();
    });
    ranks.Meet();
    ranks.Meet();
    CHECK(ranks.Join() == "");
  }
}

TEST_CASE("Emulated NCCL: memory that is not the device's is found out when it is used") {
  const RankBody with_host_memory = [](const Child& child, const NcclRank& rank) {
    NcclComm* const comm = rank.Join();
    float value = 1;
    const CUstream stream = child.NewStream();
    RANK_OK(
        rank.nccl().ncclAllReduce(&value, &value, 1, kNcclFloat32, kNcclSum, comm, Stream(stream)));
    CHILD_CUDA(CUDA_ERROR_ILLEGAL_ADDRESS, child.cuda().cuStreamSynchronize(stream));
  };
  const RankBody with_freed_memory = [](const Child& child, const NcclRank& rank) {
    NcclComm* const comm = rank.Join();
    const CUdeviceptr memory = child.NewMemory(8);
    CHILD_OK(child.cuda().cuMemFree(memory));
    const CUstream stream = child.NewStream();
    RANK_OK(rank.Sum(comm, memory, 1, stream));
    CHILD_CUDA(CUDA_ERROR_ILLEGAL_ADDRESS, child.cuda().cuStreamSynchronize(stream));
  };
  CHECK(RunRanks(1, {}, with_host_memory) == "");
  CHECK(RunRanks(1, {}, with_freed_memory) == "");
}

TEST_CASE("Emulated NCCL: a stream is one of the communicator's device") {
  CHECK(RunRanks(1, {{"RINGD_EMULATOR_CUDA_DEVICES", "2"}},
                 [](const Child& child, const NcclRank& rank) {
                   NcclComm* const comm = rank.Join();
                   child.UseDevice(1);
                   const CUstream elsewhere = child.NewStream();
                   child.UseDevice(0);
                   RANK_NCCL(kNcclUnhandledCudaError,
                             rank.Sum(comm, child.NewMemory(4), 1, elsewhere));
                 }) == "");
}

}  // namespace
}  // namespace ringd::emulator
