// CUDA's functions about streams: queues, waiting for them, and values in memory.
#include <cuda.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "tests/gpu/emulator/cuda/process.h"

using ringd::emulator::Call;
using ringd::emulator::IsInHostFunction;
using ringd::emulator::kAllocates;
using ringd::emulator::kContext;
using ringd::emulator::kSynchronises;
using ringd::emulator::Process;
using ringd::emulator::Stream;
using ringd::emulator::View;

namespace {

constexpr int kPollMicroseconds = 20;
constexpr unsigned kMostInBatch = 255;
constexpr int kIllegalAddress = -static_cast<int>(CUDA_ERROR_ILLEGAL_ADDRESS);

// The condition of a wait, but for its flush bit. None: there is no such condition.
bool IsCondition(unsigned condition) {
  return condition == CU_STREAM_WAIT_VALUE_GEQ || condition == CU_STREAM_WAIT_VALUE_EQ ||
         condition == CU_STREAM_WAIT_VALUE_AND || condition == CU_STREAM_WAIT_VALUE_NOR;
}

bool Holds(std::uint64_t found, std::uint64_t value, unsigned condition) {
  switch (condition) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return static_cast<std::int64_t>(found - value) >= 0;  // cyclic
    case CU_STREAM_WAIT_VALUE_EQ:
      return found == value;
    case CU_STREAM_WAIT_VALUE_AND:
      return (found & value) != 0;
    default:
      return ~(found | value) != 0;
  }
}

CUresult CheckValue(const Call& call, const Stream* stream, CUdeviceptr address) {
  if (!call.process().settings().stream_memory_operations) return CUDA_ERROR_NOT_SUPPORTED;
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (address % sizeof(std::uint64_t) != 0 ||
      call.process().memory().Find(address, sizeof(std::uint64_t), stream->device()).alias ==
          nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult EnqueueWait(const Call& call, CUstream handle, CUdeviceptr address, cuuint64_t value,
                     unsigned flags) {
  const std::shared_ptr<Stream> stream = call.process().FindStream(handle);
  const CUresult checked = CheckValue(call, stream.get(), address);
  if (checked != CUDA_SUCCESS) return checked;
  const unsigned condition = flags & ~static_cast<unsigned>(CU_STREAM_WAIT_VALUE_FLUSH);
  if (!IsCondition(condition)) return CUDA_ERROR_INVALID_VALUE;
  Process& process = call.process();
  const int device = stream->device();
  process.Enqueue(stream, [&process, device, address, value, condition](bool stopping) {
    if (stopping) return 0;
    const View view = process.memory().Find(address, sizeof value, device);
    if (view.alias == nullptr) return kIllegalAddress;
    // Acquire: what was written before the value is there.
    const auto found = __atomic_load_n(reinterpret_cast<cuuint64_t*>(view.alias), __ATOMIC_ACQUIRE);
    return Holds(found, value, condition) ? 0 : kPollMicroseconds;
  });
  return CUDA_SUCCESS;
}

CUresult EnqueueWrite(const Call& call, CUstream handle, CUdeviceptr address, cuuint64_t value,
                      unsigned flags) {
  const std::shared_ptr<Stream> stream = call.process().FindStream(handle);
  const CUresult checked = CheckValue(call, stream.get(), address);
  if (checked != CUDA_SUCCESS) return checked;
  if (flags > CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER) return CUDA_ERROR_INVALID_VALUE;
  Process& process = call.process();
  const int device = stream->device();
  process.Enqueue(stream, [&process, device, address, value](bool stopping) {
    if (stopping) return 0;
    const View view = process.memory().Find(address, sizeof value, device);
    if (view.alias == nullptr) return kIllegalAddress;
    // Release: pairs with a wait, or with the host's load.
    __atomic_store_n(reinterpret_cast<cuuint64_t*>(view.alias), value, __ATOMIC_RELEASE);
    return 0;
  });
  return CUDA_SUCCESS;
}

CUresult EnqueueOne(const Call& call, CUstream stream, const CUstreamBatchMemOpParams& one) {
  switch (one.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return EnqueueWait(call, stream, one.waitValue.address, one.waitValue.value64,
                         one.waitValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return EnqueueWrite(call, stream, one.writeValue.address, one.writeValue.value64,
                          one.writeValue.flags);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace

CUresult cuStreamCreate(CUstream* stream, unsigned int flags) {
  const Call call("cuStreamCreate", kContext | kAllocates);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  if (stream == nullptr || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  *stream = call.process().AddStream(call.device(), flags);
  return CUDA_SUCCESS;
}

// One priority for all: the emulator proves nothing about speed.
CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned int flags, int) {
  const Call call("cuStreamCreateWithPriority", kContext | kAllocates);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  if (stream == nullptr || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  *stream = call.process().AddStream(call.device(), flags);
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream) {
  const Call call("cuStreamDestroy", kContext | kAllocates);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  return call.process().RemoveStream(stream);
}

CUresult cuStreamQuery(CUstream handle) {
  const Call call("cuStreamQuery", kContext);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  const std::shared_ptr<Stream> stream = call.process().FindStream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return stream->IsIdle() ? call.process().machine().sticky() : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamSynchronize(CUstream handle) {
  const Call call("cuStreamSynchronize", kContext | kSynchronises);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  const std::shared_ptr<Stream> stream = call.process().FindStream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  stream->WaitFor(stream->last_ticket());
  return call.process().machine().sticky();
}

// Nothing here captures graphs, so no stream does.
CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  const Call call("cuStreamIsCapturing", kContext);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (call.process().FindStream(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

// Likewise, so a thread's mode has no effect.
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  thread_local CUstreamCaptureMode own = CU_STREAM_CAPTURE_MODE_GLOBAL;
  const Call call("cuThreadExchangeStreamCaptureMode", 0);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  if (mode == nullptr || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  std::swap(own, *mode);
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                             unsigned int flags) {
  const Call call("cuStreamWaitValue64", kContext);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  return EnqueueWait(call, stream, address, value, flags);
}

CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                              unsigned int flags) {
  const Call call("cuStreamWriteValue64", kContext);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  return EnqueueWrite(call, stream, address, value, flags);
}

CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count,
                            CUstreamBatchMemOpParams* operations, unsigned int flags) {
  const Call call("cuStreamBatchMemOp", kContext);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  if (operations == nullptr || count > kMostInBatch || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    const CUresult result = EnqueueOne(call, stream, operations[i]);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* argument) {
  const Call call("cuLaunchHostFunc", kContext);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  const std::shared_ptr<Stream> stream = call.process().FindStream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  call.process().Enqueue(stream, [function, argument](bool stopping) {
    if (stopping) return 0;  // not called after an error
    IsInHostFunction() = true;
    function(argument);
    IsInHostFunction() = false;
    return 0;
  });
  return CUDA_SUCCESS;
}
