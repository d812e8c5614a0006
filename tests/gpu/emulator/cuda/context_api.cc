// CUDA's functions about contexts: primary ones, peers, waiting for all.
#include <cuda.h>

#include "tests/gpu/emulator/cuda/process.h"

using ringd::emulator::Call;
using ringd::emulator::Context;
using ringd::emulator::kAllocates;
using ringd::emulator::kContext;
using ringd::emulator::kInitialised;
using ringd::emulator::kSynchronises;
using ringd::emulator::Process;

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  const Call call("cuDevicePrimaryCtxRetain", kInitialised | kAllocates);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return call.process().Retain(device, context);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  const Call call("cuDevicePrimaryCtxRelease", kInitialised | kAllocates);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  return call.process().Release(device);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  const Call call("cuDevicePrimaryCtxGetState", kInitialised);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  Context* const context = call.process().context(device);
  if (context == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = 0;
  *active = call.process().Live(reinterpret_cast<CUcontext>(context)) != nullptr ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  const Call call("cuCtxSetCurrent", kInitialised);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  Context* const live = call.process().Live(context);
  if (context != nullptr && live == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Process::Current() = live;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  const Call call("cuCtxGetCurrent", kInitialised);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context = reinterpret_cast<CUcontext>(Process::Current());
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  const Call call("cuCtxGetDevice", kContext);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = call.device();
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() {
  const Call call("cuCtxSynchronize", kContext | kSynchronises);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  call.process().WaitForDevice(call.device());
  return call.process().machine().sticky();
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  const Call call("cuCtxEnablePeerAccess", kContext);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Context* const other = call.process().Live(peer);
  if (other == nullptr || other->device == call.device()) return CUDA_ERROR_INVALID_CONTEXT;
  if (!call.process().settings().peer_access) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  Context* const mine = call.process().context(call.device());
  const unsigned bit = 1U << static_cast<unsigned>(other->device);
  if ((mine->peers & bit) != 0) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  mine->peers |= bit;
  call.process().memory().AllowPeer(mine->device, other->device);
  return CUDA_SUCCESS;
}
