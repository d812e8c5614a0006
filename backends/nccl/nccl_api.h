// NCCL's functions, looked up when ringd runs. Nothing of NCCL is linked: one binary runs on nodes
// with and without it, and says which version it found.
#ifndef RINGD_BACKENDS_NCCL_NCCL_API_H_
#define RINGD_BACKENDS_NCCL_NCCL_API_H_

#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/nccl/nccl_types.h"

namespace ringd {

// Every function of NCCL that ringd can't do without, and its type.
#define RINGD_NCCL_FUNCTIONS(X)                                                                   \
  X(ncclGetVersion, NcclResult(int*))                                                             \
  X(ncclGetErrorString, const char*(NcclResult))                                                  \
  X(ncclGetLastError, const char*(NcclComm*))                                                     \
  X(ncclGetUniqueId, NcclResult(NcclUniqueId*))                                                   \
  X(ncclCommInitRankConfig, NcclResult(NcclComm**, int, NcclUniqueId, int, NcclConfig*))          \
  X(ncclCommSplit, NcclResult(NcclComm*, int, int, NcclComm**, NcclConfig*))                      \
  X(ncclCommAbort, NcclResult(NcclComm*))                                                         \
  X(ncclCommFinalize, NcclResult(NcclComm*))                                                      \
  X(ncclCommDestroy, NcclResult(NcclComm*))                                                       \
  X(ncclCommGetAsyncError, NcclResult(NcclComm*, NcclResult*))                                    \
  X(ncclCommCount, NcclResult(const NcclComm*, int*))                                             \
  X(ncclCommUserRank, NcclResult(const NcclComm*, int*))                                          \
  X(ncclCommCuDevice, NcclResult(const NcclComm*, int*))                                          \
  X(ncclAllReduce,                                                                                \
    NcclResult(const void*, void*, std::size_t, NcclDataType, NcclRedOp, NcclComm*, NcclStream*)) \
  X(ncclBroadcast,                                                                                \
    NcclResult(const void*, void*, std::size_t, NcclDataType, int, NcclComm*, NcclStream*))       \
  X(ncclReduceScatter,                                                                            \
    NcclResult(const void*, void*, std::size_t, NcclDataType, NcclRedOp, NcclComm*, NcclStream*)) \
  X(ncclAllGather,                                                                                \
    NcclResult(const void*, void*, std::size_t, NcclDataType, NcclComm*, NcclStream*))            \
  X(ncclGroupStart, NcclResult())                                                                 \
  X(ncclGroupEnd, NcclResult())                                                                   \
  X(ncclRedOpCreatePreMulSum,                                                                     \
    NcclResult(NcclRedOp*, void*, NcclDataType, NcclScalarResidence, NcclComm*))                  \
  X(ncclRedOpDestroy, NcclResult(NcclRedOp, NcclComm*))                                           \
  X(ncclMemAlloc, NcclResult(void**, std::size_t))                                                \
  X(ncclMemFree, NcclResult(void*))                                                               \
  X(ncclCommRegister, NcclResult(const NcclComm*, void*, std::size_t, void**))                    \
  X(ncclCommDeregister, NcclResult(const NcclComm*, void*))

// Those that came later than kMinimumNcclVersion: null where the library lacks them.
#define RINGD_NCCL_NEWER_FUNCTIONS(X)                                  \
  X(ncclCommInitRankScalable, /* 2.23 */                               \
    NcclResult(NcclComm**, int, int, int, NcclUniqueId*, NcclConfig*)) \
  X(ncclCommWindowRegister, /* 2.27 */                                 \
    NcclResult(NcclComm*, void*, std::size_t, NcclWindow**, int))      \
  X(ncclCommWindowDeregister, NcclResult(NcclComm*, NcclWindow*)) /* 2.27 */

// The oldest NCCL that has all of RINGD_NCCL_FUNCTIONS: 2.19.1, with ncclMemAlloc and
// ncclCommRegister.
constexpr int kMinimumNcclVersion = 21901;

// "2.32.3" of 23203; NCCL up to 2.8 counted otherwise: "2.8.4" of 2804.
std::string NcclVersionText(int version);

// Thread safety: immutable after Open. NCCL's functions may be called on any thread, those of one
// communicator on one thread at a time, but for ncclCommAbort and ncclCommGetAsyncError. Ownership:
// the library stays loaded until the process ends, since threads of its own run in it. Invariant:
// no function of RINGD_NCCL_FUNCTIONS is null.
struct NcclApi {
  // Opens `file` (the name of a library, as for dlopen: "libnccl.so.2", or a path) and looks every
  // function up. Needs no GPU and no CUDA driver. Blocks for as long as loading takes.
  //   kNotFound: the library can't be loaded; the message has the loader's own text.
  //   kFailedPrecondition: it is too old or lacks a function; the message names file and function.
  static absl::StatusOr<std::unique_ptr<const NcclApi>> Open(const std::string& file);

  std::string file;
  int version = 0;  // NCCL_VERSION_CODE: 23203 is 2.32.3

// NOLINTNEXTLINE(bugprone-macro-parentheses): it is declared.
#define X(name, ...) std::add_pointer_t<__VA_ARGS__> name = nullptr;
  RINGD_NCCL_FUNCTIONS(X)
  RINGD_NCCL_NEWER_FUNCTIONS(X)
#undef X
};

// `result` as a Status: `what` was tried, then NCCL's text of it and its last error on this thread
// or communicator. `comm` may be null. Ok for kNcclSuccess.
//   kUnavailable: kNcclInProgress, ask again.  kAborted: the communicator can only be aborted: a
//   CUDA error, an error of the system or of another rank.  kDeadlineExceeded: kNcclTimeout.
//   kInternal: NCCL refuses an argument or a use (a mistake of ours), or has failed by itself.
absl::Status NcclStatus(const NcclApi& api, NcclComm* comm, absl::string_view what,
                        NcclResult result);

}  // namespace ringd

#endif  // RINGD_BACKENDS_NCCL_NCCL_API_H_
