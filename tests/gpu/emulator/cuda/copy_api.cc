// CUDA's asynchronous copies and fills.
#include <cuda.h>

#include <cstring>
#include <memory>
#include <vector>

#include "tests/gpu/emulator/cuda/process.h"

using ringd::emulator::Call;
using ringd::emulator::kAnyDevice;
using ringd::emulator::kContext;
using ringd::emulator::Process;
using ringd::emulator::Stream;
using ringd::emulator::View;

namespace {

constexpr int kIllegalAddress = -static_cast<int>(CUDA_ERROR_ILLEGAL_ADDRESS);

// A copy engine reaches what the stream's device may use, and other GPUs' memory by way of the
// host. Memory that was mapped without access for anybody it does not.
View FindForCopy(Process& process, CUdeviceptr pointer, std::size_t bytes) {
  const View view = process.memory().Find(pointer, bytes, kAnyDevice);
  return view.alias != nullptr && view.mapping.accessible_by != 0 ? view : View{};
}

enum class Direction { kToDevice, kToHost };

// A copy of memory that is not page-locked keeps the caller waiting.
CUresult CopyWithHost(const char* name, CUdeviceptr on_device, void* on_host, std::size_t bytes,
                      CUstream handle, Direction direction) {
  const Call call(name, kContext);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  Process& process = call.process();
  const std::shared_ptr<Stream> stream = process.FindStream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (bytes == 0) return CUDA_SUCCESS;
  if (on_host == nullptr || FindForCopy(process, on_device, bytes).alias == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool is_locked = process.memory().IsPageLocked(on_host, bytes);
  const std::uint64_t ticket = process.Enqueue(stream, [=, &process](bool stopping) {
    if (stopping) return 0;
    const View view = FindForCopy(process, on_device, bytes);
    if (view.alias == nullptr) return kIllegalAddress;
    if (direction == Direction::kToDevice) std::memcpy(view.alias, on_host, bytes);
    if (direction == Direction::kToHost) std::memcpy(on_host, view.alias, bytes);
    return 0;
  });
  if (is_locked) return CUDA_SUCCESS;
  process.Count("synchronising");
  stream->WaitFor(ticket);
  return process.machine().sticky();
}

}  // namespace

CUresult cuMemcpyHtoDAsync(CUdeviceptr target, const void* source, std::size_t bytes,
                           CUstream stream) {
  return CopyWithHost("cuMemcpyHtoDAsync", target, const_cast<void*>(source), bytes, stream,
                      Direction::kToDevice);
}

CUresult cuMemcpyDtoHAsync(void* target, CUdeviceptr source, std::size_t bytes, CUstream stream) {
  return CopyWithHost("cuMemcpyDtoHAsync", source, target, bytes, stream, Direction::kToHost);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr target, CUdeviceptr source, std::size_t bytes,
                           CUstream handle) {
  const Call call("cuMemcpyDtoDAsync", kContext);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  Process& process = call.process();
  const std::shared_ptr<Stream> stream = process.FindStream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (bytes == 0) return CUDA_SUCCESS;
  if (FindForCopy(process, source, bytes).alias == nullptr ||
      FindForCopy(process, target, bytes).alias == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  process.Enqueue(stream, [&process, target, source, bytes](bool stopping) {
    if (stopping) return 0;
    const View from = FindForCopy(process, source, bytes);
    const View to = FindForCopy(process, target, bytes);
    if (from.alias == nullptr || to.alias == nullptr) return kIllegalAddress;
    std::memmove(to.alias, from.alias, bytes);
    return 0;
  });
  return CUDA_SUCCESS;
}

namespace {

template <typename Element>
CUresult Fill(const char* name, CUdeviceptr target, Element value, std::size_t count,
              CUstream handle) {
  const Call call(name, kContext);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  Process& process = call.process();
  const std::shared_ptr<Stream> stream = process.FindStream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (count == 0) return CUDA_SUCCESS;
  if (target % sizeof(Element) != 0 || count > SIZE_MAX / sizeof(Element) ||
      FindForCopy(process, target, count * sizeof(Element)).alias == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  process.Enqueue(stream, [&process, target, value, count](bool stopping) {
    if (stopping) return 0;
    const View view = FindForCopy(process, target, count * sizeof(Element));
    if (view.alias == nullptr) return kIllegalAddress;
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(view.alias + i * sizeof(Element), &value, sizeof value);
    }
    return 0;
  });
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemsetD8Async(CUdeviceptr target, unsigned char value, std::size_t count,
                         CUstream stream) {
  return Fill("cuMemsetD8Async", target, value, count, stream);
}

CUresult cuMemsetD32Async(CUdeviceptr target, unsigned int value, std::size_t count,
                          CUstream stream) {
  return Fill("cuMemsetD32Async", target, value, count, stream);
}
