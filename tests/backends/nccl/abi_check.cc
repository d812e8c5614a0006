// Holds backends/nccl's own declarations against the real nccl.h: compiling it is the test
// (nccl_library_test.py). What NCCL calls an enumeration's end is no part of the interface.
#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include "backends/nccl/nccl_api.h"

namespace ringd {
namespace {

static_assert(kNcclSuccess == static_cast<int>(ncclSuccess));
static_assert(kNcclUnhandledCudaError == static_cast<int>(ncclUnhandledCudaError));
static_assert(kNcclSystemError == static_cast<int>(ncclSystemError));
static_assert(kNcclInternalError == static_cast<int>(ncclInternalError));
static_assert(kNcclInvalidArgument == static_cast<int>(ncclInvalidArgument));
static_assert(kNcclInvalidUsage == static_cast<int>(ncclInvalidUsage));
static_assert(kNcclRemoteError == static_cast<int>(ncclRemoteError));
static_assert(kNcclInProgress == static_cast<int>(ncclInProgress));
static_assert(kNcclTimeout == static_cast<int>(ncclTimeout));

static_assert(kNcclInt8 == static_cast<int>(ncclInt8));
static_assert(kNcclUint8 == static_cast<int>(ncclUint8));
static_assert(kNcclInt32 == static_cast<int>(ncclInt32));
static_assert(kNcclUint32 == static_cast<int>(ncclUint32));
static_assert(kNcclInt64 == static_cast<int>(ncclInt64));
static_assert(kNcclUint64 == static_cast<int>(ncclUint64));
static_assert(kNcclFloat16 == static_cast<int>(ncclFloat16));
static_assert(kNcclFloat32 == static_cast<int>(ncclFloat32));
static_assert(kNcclFloat64 == static_cast<int>(ncclFloat64));
static_assert(kNcclBfloat16 == static_cast<int>(ncclBfloat16));
static_assert(kNcclFloat8E4M3 == static_cast<int>(ncclFloat8e4m3));
static_assert(kNcclFloat8E5M2 == static_cast<int>(ncclFloat8e5m2));

static_assert(kNcclSum == static_cast<int>(ncclSum));
static_assert(kNcclProduct == static_cast<int>(ncclProd));
static_assert(kNcclMax == static_cast<int>(ncclMax));
static_assert(kNcclMin == static_cast<int>(ncclMin));
static_assert(kNcclAverage == static_cast<int>(ncclAvg));
static_assert(kNcclBuiltInOps == static_cast<int>(ncclNumOps));
static_assert(kNcclScalarDevice == static_cast<int>(ncclScalarDevice));
static_assert(kNcclScalarHostImmediate == static_cast<int>(ncclScalarHostImmediate));

static_assert(sizeof(NcclUniqueId) == sizeof(ncclUniqueId));
static_assert(alignof(NcclUniqueId) == alignof(ncclUniqueId));
static_assert(kNcclUndefined == NCCL_CONFIG_UNDEF_INT);
static_assert(kNcclSplitNoColor == NCCL_SPLIT_NOCOLOR);
static_assert(kNcclWindowSymmetric == NCCL_WIN_COLL_SYMMETRIC);
static_assert(kNcclWindowAlignment == NCCL_WIN_REQUIRED_ALIGNMENT);

// Ours is the beginning of theirs. NCCL looks at `size` to see where ours ends. Our last field is
// padding, where a later field of theirs may lie.
static_assert(sizeof(NcclConfig) <= sizeof(ncclConfig_t));
static_assert(offsetof(NcclConfig, size) == offsetof(ncclConfig_t, size));
static_assert(offsetof(NcclConfig, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(NcclConfig, cluster_size) == offsetof(ncclConfig_t, cgaClusterSize));
static_assert(offsetof(NcclConfig, min_ctas) == offsetof(ncclConfig_t, minCTAs));
static_assert(offsetof(NcclConfig, max_ctas) == offsetof(ncclConfig_t, maxCTAs));
static_assert(offsetof(NcclConfig, network) == offsetof(ncclConfig_t, netName));
static_assert(offsetof(NcclConfig, split_share) == offsetof(ncclConfig_t, splitShare));

// How a type of NCCL's is passed: a pointer is one, whatever it points to, and an enumeration is an
// int.
template <typename T>
using Passed =
    std::conditional_t<std::is_pointer_v<T>, void*, std::conditional_t<std::is_enum_v<T>, int, T>>;

template <typename Ours, typename Theirs>
constexpr bool kIsAlike = std::is_same_v<Passed<Ours>, Passed<Theirs>>;
template <>
constexpr bool kIsAlike<NcclUniqueId, ncclUniqueId> = true;

template <typename Ours, typename Theirs>
constexpr bool kHasSameForm = false;
template <typename R, typename... A, typename S, typename... B>
constexpr bool kHasSameForm<R(A...), S(B...)> = [] {
  if constexpr (sizeof...(A) == sizeof...(B)) {
    return kIsAlike<R, S> && (kIsAlike<A, B> && ...);
  } else {
    return false;
  }
}();

// Each function of the table has the form that nccl.h gives it.
#define X(name, ...) static_assert(kHasSameForm<__VA_ARGS__, decltype(::name)>, #name);
RINGD_NCCL_FUNCTIONS(X)
RINGD_NCCL_NEWER_FUNCTIONS(X)
#undef X

// The magic number is in the initialiser alone.
constexpr ncclConfig_t kInitialised = NCCL_CONFIG_INITIALIZER;
static_assert(kNcclConfigMagic == kInitialised.magic);

}  // namespace
}  // namespace ringd
