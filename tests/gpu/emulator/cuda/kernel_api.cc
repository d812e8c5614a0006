// CUDA's functions about modules and kernels.
#include <cuda.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/gpu/emulator/cuda/process.h"

using ringd::emulator::Call;
using ringd::emulator::Function;
using ringd::emulator::kAllocates;
using ringd::emulator::kContext;
using ringd::emulator::kSynchronises;
using ringd::emulator::Process;
using ringd::emulator::Stream;

namespace {

constexpr unsigned kFatBinary = 0xBA55ED50;
constexpr char kElf[] =
    "\x7f"
    "ELF";
constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kMaxSharedBytes = 48 << 10;

}  // namespace

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  const Call call("cuModuleLoadData", kContext | kAllocates | kSynchronises);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  if (module == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  unsigned first = 0;
  std::memcpy(&first, image, sizeof first);
  const bool is_binary = first == kFatBinary || std::memcmp(image, kElf, 4) == 0;
  const char* const text = static_cast<const char*>(image);
  const bool is_ptx = std::memcmp(image, "//", 2) == 0 || std::memcmp(image, ".ver", 4) == 0;
  if (!is_binary && (!is_ptx || std::strstr(text, ".version") == nullptr)) {
    return CUDA_ERROR_INVALID_IMAGE;
  }
  *module = call.process().AddModule(call.device(), is_ptx ? text : "");
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
  const Call call("cuModuleUnload", kContext | kAllocates | kSynchronises);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  call.process().WaitForDevice(call.device());
  return call.process().RemoveModule(module);
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  const Call call("cuModuleGetFunction", kContext);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  if (function == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  bool is_new = false;
  const CUresult result = call.process().GetFunction(module, name, function, &is_new);
  if (is_new && call.process().settings().lazy_loading) call.process().Load(call.device());
  return result;
}

CUresult cuLaunchKernel(CUfunction handle, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CUstream stream_handle,
                        void** parameters, void** extra) {
  const Call call("cuLaunchKernel", kContext);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  Process& process = call.process();
  const Function* const function = process.FindFunction(handle);
  const std::shared_ptr<Stream> stream = process.FindStream(stream_handle);
  if (function == nullptr || stream == nullptr || stream->device() != function->device) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  const std::uint64_t threads = std::uint64_t{block_x} * block_y * block_z;
  const bool is_empty = grid_x == 0 || grid_y == 0 || grid_z == 0 || threads == 0;
  const RingdEmulatorKernel& kernel = *function->kernel;
  if (is_empty || threads > kMaxThreads || grid_y > 65535 || grid_z > 65535 ||
      shared_bytes > kMaxSharedBytes || extra != nullptr ||
      (kernel.parameter_count > 0 && parameters == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // The caller may change its parameters as soon as this returns.
  std::vector<std::string> values;
  for (unsigned i = 0; i < kernel.parameter_count; ++i) {
    values.emplace_back(static_cast<const char*>(parameters[i]), kernel.parameter_bytes[i]);
  }
  const RingdEmulatorLaunch launch{{grid_x, grid_y, grid_z},
                                   {block_x, block_y, block_z},
                                   shared_bytes,
                                   stream->device(),
                                   ringd_emulator_device_alias};
  process.Enqueue(stream, [values, launch, run = kernel.run](bool stopping) {
    if (stopping) return 0;
    std::vector<const void*> pointers;
    for (const std::string& value : values) pointers.push_back(value.data());
    return -run(&launch, pointers.data());
  });
  return CUDA_SUCCESS;
}
