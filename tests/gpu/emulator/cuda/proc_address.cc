// cuGetProcAddress: which function a name and a version of CUDA mean.
#include <cuda.h>
#include <cudaTypedefs.h>

#include <cstring>

#include "tests/gpu/emulator/cuda/process.h"

using ringd::emulator::Call;
using ringd::emulator::kAnyTime;

namespace {

struct Symbol {
  const char* name;
  int since;  // the version of CUDA that brought this variant
  void* function;
};

// The type says that the function is the variant of that version.
#define RINGD_SYMBOL(name, version, function)                                         \
  {                                                                                   \
#name, (version),                                                                 \
        reinterpret_cast < void*>(static_cast <PFN_##name##_v##version>(&(function))) \
  }

const Symbol kSymbols[] = {
    RINGD_SYMBOL(cuInit, 2000, cuInit),
    RINGD_SYMBOL(cuDriverGetVersion, 2020, cuDriverGetVersion),
    RINGD_SYMBOL(cuGetErrorName, 6000, cuGetErrorName),
    RINGD_SYMBOL(cuGetErrorString, 6000, cuGetErrorString),
    RINGD_SYMBOL(cuDeviceGetCount, 2000, cuDeviceGetCount),
    RINGD_SYMBOL(cuDeviceGet, 2000, cuDeviceGet),
    RINGD_SYMBOL(cuDeviceGetName, 2000, cuDeviceGetName),
    RINGD_SYMBOL(cuDeviceGetUuid, 11040, cuDeviceGetUuid_v2),
    RINGD_SYMBOL(cuDeviceTotalMem, 3020, cuDeviceTotalMem),
    RINGD_SYMBOL(cuDeviceGetAttribute, 2000, cuDeviceGetAttribute),
    RINGD_SYMBOL(cuDeviceGetPCIBusId, 4010, cuDeviceGetPCIBusId),
    RINGD_SYMBOL(cuDeviceCanAccessPeer, 4000, cuDeviceCanAccessPeer),
    RINGD_SYMBOL(cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain),
    RINGD_SYMBOL(cuDevicePrimaryCtxRelease, 11000, cuDevicePrimaryCtxRelease),
    RINGD_SYMBOL(cuDevicePrimaryCtxGetState, 7000, cuDevicePrimaryCtxGetState),
    RINGD_SYMBOL(cuCtxSetCurrent, 4000, cuCtxSetCurrent),
    RINGD_SYMBOL(cuCtxGetCurrent, 4000, cuCtxGetCurrent),
    RINGD_SYMBOL(cuCtxGetDevice, 2000, cuCtxGetDevice),
    RINGD_SYMBOL(cuCtxSynchronize, 2000, cuCtxSynchronize),
    RINGD_SYMBOL(cuCtxEnablePeerAccess, 4000, cuCtxEnablePeerAccess),
    RINGD_SYMBOL(cuMemGetInfo, 3020, cuMemGetInfo),
    RINGD_SYMBOL(cuMemAlloc, 3020, cuMemAlloc),
    RINGD_SYMBOL(cuMemFree, 3020, cuMemFree),
    RINGD_SYMBOL(cuMemGetAddressRange, 3020, cuMemGetAddressRange),
    RINGD_SYMBOL(cuMemHostAlloc, 2020, cuMemHostAlloc),
    RINGD_SYMBOL(cuMemFreeHost, 2000, cuMemFreeHost),
    RINGD_SYMBOL(cuMemHostRegister, 6050, cuMemHostRegister),
    RINGD_SYMBOL(cuMemHostUnregister, 4000, cuMemHostUnregister),
    RINGD_SYMBOL(cuMemHostGetDevicePointer, 3020, cuMemHostGetDevicePointer),
    RINGD_SYMBOL(cuPointerGetAttribute, 4000, cuPointerGetAttribute),
    RINGD_SYMBOL(cuMemGetAllocationGranularity, 10020, cuMemGetAllocationGranularity),
    RINGD_SYMBOL(cuMemCreate, 10020, cuMemCreate),
    RINGD_SYMBOL(cuMemRelease, 10020, cuMemRelease),
    RINGD_SYMBOL(cuMemAddressReserve, 10020, cuMemAddressReserve),
    RINGD_SYMBOL(cuMemAddressFree, 10020, cuMemAddressFree),
    RINGD_SYMBOL(cuMemMap, 10020, cuMemMap),
    RINGD_SYMBOL(cuMemUnmap, 10020, cuMemUnmap),
    RINGD_SYMBOL(cuMemSetAccess, 10020, cuMemSetAccess),
    RINGD_SYMBOL(cuMemExportToShareableHandle, 10020, cuMemExportToShareableHandle),
    RINGD_SYMBOL(cuMemImportFromShareableHandle, 10020, cuMemImportFromShareableHandle),
    RINGD_SYMBOL(cuMemcpyHtoDAsync, 3020, cuMemcpyHtoDAsync),
    RINGD_SYMBOL(cuMemcpyDtoHAsync, 3020, cuMemcpyDtoHAsync),
    RINGD_SYMBOL(cuMemcpyDtoDAsync, 3020, cuMemcpyDtoDAsync),
    RINGD_SYMBOL(cuMemsetD8Async, 3020, cuMemsetD8Async),
    RINGD_SYMBOL(cuMemsetD32Async, 3020, cuMemsetD32Async),
    RINGD_SYMBOL(cuStreamCreate, 2000, cuStreamCreate),
    RINGD_SYMBOL(cuStreamCreateWithPriority, 5050, cuStreamCreateWithPriority),
    RINGD_SYMBOL(cuStreamDestroy, 4000, cuStreamDestroy),
    RINGD_SYMBOL(cuStreamQuery, 2000, cuStreamQuery),
    RINGD_SYMBOL(cuStreamSynchronize, 2000, cuStreamSynchronize),
    RINGD_SYMBOL(cuStreamIsCapturing, 10000, cuStreamIsCapturing),
    RINGD_SYMBOL(cuThreadExchangeStreamCaptureMode, 10010, cuThreadExchangeStreamCaptureMode),
    RINGD_SYMBOL(cuStreamWaitEvent, 3020, cuStreamWaitEvent),
    RINGD_SYMBOL(cuStreamWaitValue64, 11070, cuStreamWaitValue64),
    RINGD_SYMBOL(cuStreamWriteValue64, 11070, cuStreamWriteValue64),
    RINGD_SYMBOL(cuStreamBatchMemOp, 11070, cuStreamBatchMemOp),
    RINGD_SYMBOL(cuLaunchHostFunc, 10000, cuLaunchHostFunc),
    RINGD_SYMBOL(cuEventCreate, 2000, cuEventCreate),
    RINGD_SYMBOL(cuEventDestroy, 4000, cuEventDestroy),
    RINGD_SYMBOL(cuEventRecord, 2000, cuEventRecord),
    RINGD_SYMBOL(cuEventQuery, 2000, cuEventQuery),
    RINGD_SYMBOL(cuEventSynchronize, 2000, cuEventSynchronize),
    RINGD_SYMBOL(cuIpcGetEventHandle, 4010, cuIpcGetEventHandle),
    RINGD_SYMBOL(cuIpcOpenEventHandle, 4010, cuIpcOpenEventHandle),
    RINGD_SYMBOL(cuModuleLoadData, 2000, cuModuleLoadData),
    RINGD_SYMBOL(cuModuleUnload, 2000, cuModuleUnload),
    RINGD_SYMBOL(cuModuleGetFunction, 2000, cuModuleGetFunction),
    RINGD_SYMBOL(cuLaunchKernel, 4000, cuLaunchKernel),
};
#undef RINGD_SYMBOL

}  // namespace

CUresult cuGetProcAddress(const char* name, void** function, int version, cuuint64_t,
                          CUdriverProcAddressQueryResult* status) {
  const Call call("cuGetProcAddress", kAnyTime);
  if (name == nullptr || function == nullptr ||
      version > call.process().settings().driver_version) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *function = nullptr;
  CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  for (const Symbol& symbol : kSymbols) {
    if (std::strcmp(symbol.name, name) != 0 || call.process().settings().without == name) continue;
    const bool is_there = version >= symbol.since;
    found = is_there ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    if (is_there) *function = symbol.function;
  }
  if (status != nullptr) *status = found;
  return CUDA_SUCCESS;
}
