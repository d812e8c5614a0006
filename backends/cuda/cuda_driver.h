// The CUDA driver's functions, looked up when ringd runs. Nothing of CUDA is linked: one binary
// runs on nodes with and without GPUs, and says which it found.
#ifndef RINGD_BACKENDS_CUDA_CUDA_DRIVER_H_
#define RINGD_BACKENDS_CUDA_CUDA_DRIVER_H_

#include <cuda.h>
#include <cudaTypedefs.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ringd {

// Every function of the driver that ringd calls: its name, the version of CUDA that brought the
// variant we mean, and the name under which the library exports that variant.
#define RINGD_CUDA_FUNCTIONS(X)                                                    \
  X(cuInit, 2000, "cuInit")                                                        \
  X(cuGetErrorName, 6000, "cuGetErrorName")                                        \
  X(cuGetErrorString, 6000, "cuGetErrorString")                                    \
  X(cuDeviceGetCount, 2000, "cuDeviceGetCount")                                    \
  X(cuDeviceGet, 2000, "cuDeviceGet")                                              \
  X(cuDeviceGetName, 2000, "cuDeviceGetName")                                      \
  X(cuDeviceGetUuid, 11040, "cuDeviceGetUuid_v2")                                  \
  X(cuDeviceTotalMem, 3020, "cuDeviceTotalMem_v2")                                 \
  X(cuDeviceGetAttribute, 2000, "cuDeviceGetAttribute")                            \
  X(cuDeviceGetPCIBusId, 4010, "cuDeviceGetPCIBusId")                              \
  X(cuDeviceCanAccessPeer, 4000, "cuDeviceCanAccessPeer")                          \
  X(cuDevicePrimaryCtxRetain, 7000, "cuDevicePrimaryCtxRetain")                    \
  X(cuDevicePrimaryCtxRelease, 11000, "cuDevicePrimaryCtxRelease_v2")              \
  X(cuCtxSetCurrent, 4000, "cuCtxSetCurrent")                                      \
  X(cuCtxGetCurrent, 4000, "cuCtxGetCurrent")                                      \
  X(cuCtxGetDevice, 2000, "cuCtxGetDevice")                                        \
  X(cuCtxSynchronize, 2000, "cuCtxSynchronize")                                    \
  X(cuCtxEnablePeerAccess, 4000, "cuCtxEnablePeerAccess")                          \
  X(cuMemGetInfo, 3020, "cuMemGetInfo_v2")                                         \
  X(cuMemAlloc, 3020, "cuMemAlloc_v2")                                             \
  X(cuMemFree, 3020, "cuMemFree_v2")                                               \
  X(cuMemGetAddressRange, 3020, "cuMemGetAddressRange_v2")                         \
  X(cuMemHostAlloc, 2020, "cuMemHostAlloc")                                        \
  X(cuMemFreeHost, 2000, "cuMemFreeHost")                                          \
  X(cuMemHostRegister, 6050, "cuMemHostRegister_v2")                               \
  X(cuMemHostUnregister, 4000, "cuMemHostUnregister")                              \
  X(cuMemHostGetDevicePointer, 3020, "cuMemHostGetDevicePointer_v2")               \
  X(cuPointerGetAttribute, 4000, "cuPointerGetAttribute")                          \
  X(cuMemGetAllocationGranularity, 10020, "cuMemGetAllocationGranularity")         \
  X(cuMemCreate, 10020, "cuMemCreate")                                             \
  X(cuMemRelease, 10020, "cuMemRelease")                                           \
  X(cuMemAddressReserve, 10020, "cuMemAddressReserve")                             \
  X(cuMemAddressFree, 10020, "cuMemAddressFree")                                   \
  X(cuMemMap, 10020, "cuMemMap")                                                   \
  X(cuMemUnmap, 10020, "cuMemUnmap")                                               \
  X(cuMemSetAccess, 10020, "cuMemSetAccess")                                       \
  X(cuMemExportToShareableHandle, 10020, "cuMemExportToShareableHandle")           \
  X(cuMemImportFromShareableHandle, 10020, "cuMemImportFromShareableHandle")       \
  X(cuMemcpyHtoDAsync, 3020, "cuMemcpyHtoDAsync_v2")                               \
  X(cuMemcpyDtoHAsync, 3020, "cuMemcpyDtoHAsync_v2")                               \
  X(cuMemcpyDtoDAsync, 3020, "cuMemcpyDtoDAsync_v2")                               \
  X(cuMemsetD8Async, 3020, "cuMemsetD8Async")                                      \
  X(cuMemsetD32Async, 3020, "cuMemsetD32Async")                                    \
  X(cuStreamCreate, 2000, "cuStreamCreate")                                        \
  X(cuStreamCreateWithPriority, 5050, "cuStreamCreateWithPriority")                \
  X(cuStreamDestroy, 4000, "cuStreamDestroy_v2")                                   \
  X(cuStreamQuery, 2000, "cuStreamQuery")                                          \
  X(cuStreamSynchronize, 2000, "cuStreamSynchronize")                              \
  X(cuStreamIsCapturing, 10000, "cuStreamIsCapturing")                             \
  X(cuThreadExchangeStreamCaptureMode, 10010, "cuThreadExchangeStreamCaptureMode") \
  X(cuStreamWaitEvent, 3020, "cuStreamWaitEvent")                                  \
  X(cuStreamWaitValue64, 11070, "cuStreamWaitValue64_v2")                          \
  X(cuStreamWriteValue64, 11070, "cuStreamWriteValue64_v2")                        \
  X(cuStreamBatchMemOp, 11070, "cuStreamBatchMemOp_v2")                            \
  X(cuLaunchHostFunc, 10000, "cuLaunchHostFunc")                                   \
  X(cuEventCreate, 2000, "cuEventCreate")                                          \
  X(cuEventDestroy, 4000, "cuEventDestroy_v2")                                     \
  X(cuEventRecord, 2000, "cuEventRecord")                                          \
  X(cuEventQuery, 2000, "cuEventQuery")                                            \
  X(cuEventSynchronize, 2000, "cuEventSynchronize")                                \
  X(cuIpcGetEventHandle, 4010, "cuIpcGetEventHandle")                              \
  X(cuIpcOpenEventHandle, 4010, "cuIpcOpenEventHandle")                            \
  X(cuModuleLoadData, 2000, "cuModuleLoadData")                                    \
  X(cuModuleUnload, 2000, "cuModuleUnload")                                        \
  X(cuModuleGetFunction, 2000, "cuModuleGetFunction")                              \
  X(cuLaunchKernel, 4000, "cuLaunchKernel")

// cuda.h turns some names into those of variants. Here they are what they say.
#undef cuDeviceGetUuid
#undef cuDeviceTotalMem
#undef cuDevicePrimaryCtxRelease
#undef cuMemGetInfo
#undef cuMemAlloc
#undef cuMemFree
#undef cuMemGetAddressRange
#undef cuMemHostRegister
#undef cuMemHostGetDevicePointer
#undef cuMemcpyHtoDAsync
#undef cuMemcpyDtoHAsync
#undef cuMemcpyDtoDAsync
#undef cuStreamDestroy
#undef cuStreamBatchMemOp
#undef cuStreamWaitValue64
#undef cuStreamWriteValue64
#undef cuEventDestroy

// The oldest driver that has all of them: CUDA 11.7, driver 515.
constexpr int kMinimumCudaVersion = 11070;

// "12.4" of 12040.
std::string CudaVersionText(int version);

// Thread safety: immutable after Open; CUDA's functions may be called on any thread, with the
// current context of that thread. Ownership: the library stays loaded until the process ends, since
// the driver's own threads run in it. Invariant: no function is null.
struct CudaDriver {
  // Opens `file` (the name of a library, as for dlopen: "libcuda.so.1", or a path) and looks every
  // function up. Initialises nothing: cuInit is the caller's. Blocks for as long as loading takes.
  //   kNotFound: the library can't be loaded; the message has the loader's own text.
  //   kFailedPrecondition: it is too old or lacks a function; the message names file and function.
  static absl::StatusOr<std::unique_ptr<const CudaDriver>> Open(const std::string& file);

  std::string file;
  int version = 0;  // the newest CUDA that the driver knows: 12040 is 12.4

// NOLINTNEXTLINE(bugprone-macro-parentheses): it is declared.
#define X(name, since, symbol) PFN_##name##_v##since name = nullptr;
  RINGD_CUDA_FUNCTIONS(X)
#undef X
};

// `result` as a Status: `what` was tried, then CUDA's name and text of it. Ok for CUDA_SUCCESS.
//   kResourceExhausted: no memory is left.  kUnavailable: not yet, or MPS is not ready.
//   kAborted: IsFatal.  kFailedPrecondition: no device, no such function or feature.
//   kInternal: everything else, which is a mistake of ours.
absl::Status CudaStatus(const CudaDriver& driver, absl::string_view what, CUresult result);

// Whether after `result` every call fails until the process ends.
bool IsFatal(CUresult result);

}  // namespace ringd

#endif  // RINGD_BACKENDS_CUDA_CUDA_DRIVER_H_
