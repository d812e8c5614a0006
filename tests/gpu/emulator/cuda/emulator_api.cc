#include "tests/gpu/emulator/cuda/emulator_api.h"

#include <memory>

#include "tests/gpu/emulator/cuda/process.h"

using ringd::emulator::kAnyDevice;
using ringd::emulator::Process;
using ringd::emulator::Stream;

void* ringd_emulator_alias(unsigned long long device_pointer, size_t bytes) {
  return Process::Get().memory().Find(device_pointer, bytes, kAnyDevice).alias;
}

void* ringd_emulator_device_alias(int device, unsigned long long device_pointer, size_t bytes) {
  if (Process::Get().context(device) == nullptr) return nullptr;
  return Process::Get().memory().Find(device_pointer, bytes, device).alias;
}

int ringd_emulator_enqueue(void* handle, int (*work)(void* arg, int stopping), void* arg) {
  Process& process = Process::Get();
  if (handle == nullptr || work == nullptr) return CUDA_ERROR_INVALID_VALUE;
  process.AwaitLoading();
  const std::shared_ptr<Stream> stream = process.FindStream(static_cast<CUstream>(handle));
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (process.machine().sticky() != CUDA_SUCCESS) return process.machine().sticky();
  process.Enqueue(stream, [work, arg](bool stopping) {
    const int result = work(arg, stopping ? 1 : 0);
    return stopping ? 0 : result;
  });
  return CUDA_SUCCESS;
}

unsigned long long ringd_emulator_calls(const char* name) {
  return name == nullptr ? 0 : Process::Get().CallsOf(name);
}

int ringd_emulator_stream_device(void* handle) {
  if (handle == nullptr) return -1;
  const std::shared_ptr<Stream> stream = Process::Get().FindStream(static_cast<CUstream>(handle));
  return stream == nullptr ? -1 : stream->device();
}

void ringd_emulator_fail_device(int device, int result) {
  if (Process::Get().context(device) == nullptr || result == CUDA_SUCCESS) return;
  Process::Get().machine().FailDevice(device, static_cast<CUresult>(result));
}
