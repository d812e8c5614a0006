// One collective of one rank, as its stream runs it.
#ifndef RINGD_TESTS_GPU_EMULATOR_NCCL_COLLECTIVE_H_
#define RINGD_TESTS_GPU_EMULATOR_NCCL_COLLECTIVE_H_

#include <cstdint>
#include <memory>

#include "tests/gpu/emulator/nccl/communicator.h"

namespace ringd::emulator {

enum class CollectiveKind : std::int32_t { kAllReduce, kBroadcast, kReduceScatter, kAllGather };

// As the user has called it. `count` is what the call's own parameter counts: the elements of one
// rank's part of a reduce-scatter or all-gather.
struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  const void* send = nullptr;
  void* receive = nullptr;
  std::size_t count = 0;
  NcclDataType type = kNcclFloat32;
  NcclRedOp op = kNcclSum;
  int root = 0;
  NcclStream* stream = nullptr;
};

// What NCCL refuses before it does anything: kNcclSuccess, or its error.
NcclResult CheckCall(const Communicator& communicator, const CollectiveCall& call);

// Puts the collective on its stream.
//   kNcclUnhandledCudaError: CUDA refuses, or the stream is another device's.
NcclResult Launch(const std::shared_ptr<Communicator>& communicator, const CollectiveCall& call);

}  // namespace ringd::emulator

#endif  // RINGD_TESTS_GPU_EMULATOR_NCCL_COLLECTIVE_H_
