// NCCL's types and numbers, as its library expects them, declared here: nccl.h comes with 300 MB of
// library and wants CUDA's run-time headers. tests/backends/nccl/abi_check.cc holds them against
// the real nccl.h.
#ifndef RINGD_BACKENDS_NCCL_NCCL_TYPES_H_
#define RINGD_BACKENDS_NCCL_NCCL_TYPES_H_

#include <climits>
#include <cstddef>
#include <optional>

#include "proto/types/data_type.h"
#include "proto/types/reduce_op.h"

namespace ringd {

// Opaque: ncclComm_t, ncclWindow_t and cudaStream_t (which is a CUstream) point to them.
struct NcclComm;
struct NcclWindow;
struct NcclStream;

enum NcclResult : int {
  kNcclSuccess = 0,
  kNcclUnhandledCudaError = 1,
  kNcclSystemError = 2,
  kNcclInternalError = 3,
  kNcclInvalidArgument = 4,
  kNcclInvalidUsage = 5,
  kNcclRemoteError = 6,
  kNcclInProgress = 7,
  kNcclTimeout = 8,  // since 2.32
};

enum NcclDataType : int {
  kNcclInt8 = 0,
  kNcclUint8 = 1,
  kNcclInt32 = 2,
  kNcclUint32 = 3,
  kNcclInt64 = 4,
  kNcclUint64 = 5,
  kNcclFloat16 = 6,
  kNcclFloat32 = 7,
  kNcclFloat64 = 8,
  kNcclBfloat16 = 9,
  kNcclFloat8E4M3 = 10,  // since 2.24, as the next one
  kNcclFloat8E5M2 = 11,
};

// Numbers from kNcclBuiltInOps on are operators that ncclRedOpCreatePreMulSum has made.
enum NcclRedOp : int {
  kNcclSum = 0,
  kNcclProduct = 1,
  kNcclMax = 2,
  kNcclMin = 3,
  kNcclAverage = 4,
  kNcclBuiltInOps = 5,
};

// Where the scalar of ncclRedOpCreatePreMulSum lies.
enum NcclScalarResidence : int { kNcclScalarDevice = 0, kNcclScalarHostImmediate = 1 };

struct NcclUniqueId {
  char bytes[128];
};

constexpr int kNcclUndefined = INT_MIN;
constexpr int kNcclSplitNoColor = -1;
constexpr unsigned kNcclConfigMagic = 0xcafebeef;
// Both of windows: ncclCommWindowRegister.
constexpr int kNcclWindowSymmetric = 1;
constexpr std::size_t kNcclWindowAlignment = 4096;

// ncclConfig_t as of 2.19. A newer library reads `size` and `version` and takes its defaults for
// the fields that came later.
struct NcclConfig {
  std::size_t size = sizeof(NcclConfig);
  unsigned magic = kNcclConfigMagic;
  unsigned version = 21900;
  int blocking = kNcclUndefined;  // 0: calls answer kNcclInProgress and ncclCommGetAsyncError tells
  int cluster_size = kNcclUndefined;
  int min_ctas = kNcclUndefined;
  int max_ctas = kNcclUndefined;
  const char* network = nullptr;
  int split_share = kNcclUndefined;
  int reserved = kNcclUndefined;
};

// NCCL's number of a type; nothing for those that NCCL doesn't have: bool and the 16-bit integers.
constexpr std::optional<NcclDataType> NcclTypeOf(DataType type) noexcept {
  switch (type) {
    case DataType::kInt8:
      return kNcclInt8;
    case DataType::kUint8:
      return kNcclUint8;
    case DataType::kInt32:
      return kNcclInt32;
    case DataType::kUint32:
      return kNcclUint32;
    case DataType::kInt64:
      return kNcclInt64;
    case DataType::kUint64:
      return kNcclUint64;
    case DataType::kFloat16:
      return kNcclFloat16;
    case DataType::kFloat32:
      return kNcclFloat32;
    case DataType::kFloat64:
      return kNcclFloat64;
    case DataType::kBfloat16:
      return kNcclBfloat16;
    case DataType::kFloat8E4M3:
      return kNcclFloat8E4M3;
    case DataType::kFloat8E5M2:
      return kNcclFloat8E5M2;
    case DataType::kUint16:
    case DataType::kInt16:
    case DataType::kBool:
      break;
  }
  return std::nullopt;
}

// The inverse; nothing for a number that is none of NCCL's.
constexpr std::optional<DataType> DataTypeOf(NcclDataType type) noexcept {
  for (int candidate = 0; candidate < kDataTypeCount; ++candidate) {
    const auto ours = static_cast<DataType>(candidate);
    if (NcclTypeOf(ours) == type) return ours;
  }
  return std::nullopt;
}

// Precondition: IsValid(op).
constexpr NcclRedOp NcclOpOf(ReduceOp op) noexcept {
  constexpr NcclRedOp kOps[kReduceOpCount] = {kNcclSum, kNcclAverage, kNcclMin, kNcclMax,
                                              kNcclProduct};
  return kOps[static_cast<int>(op)];
}

}  // namespace ringd

#endif  // RINGD_BACKENDS_NCCL_NCCL_TYPES_H_
