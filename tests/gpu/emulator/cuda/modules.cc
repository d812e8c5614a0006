// Modules and kernels: an image is looked at, but the bodies come from a library compiled for the
// host.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "tests/gpu/emulator/cuda/process.h"

namespace ringd::emulator {
namespace {

constexpr int kPollMicroseconds = 100;

const RingdEmulatorKernel* OpenKernels(const std::string& file) {
  static const RingdEmulatorKernel kNone[] = {{nullptr, nullptr, 0, nullptr}};
  if (file.empty()) return kNone;
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const table = library == nullptr ? nullptr : ::dlsym(library, "ringd_emulator_kernels");
  if (table == nullptr) {
    std::fprintf(stderr, "emulated CUDA driver: RINGD_EMULATOR_CUDA_KERNELS: %s\n", ::dlerror());
    std::abort();
  }
  return reinterpret_cast<decltype(&ringd_emulator_kernels)>(table)();
}

}  // namespace

const RingdEmulatorKernel* Process::FindKernel(const std::string& name) {
  if (kernels_ == nullptr) kernels_ = OpenKernels(settings_.kernels);
  const RingdEmulatorKernel* kernel = kernels_;
  while (kernel->name != nullptr && name != kernel->name) ++kernel;
  return kernel->name == nullptr ? nullptr : kernel;
}

CUmodule Process::AddModule(int device, std::string image) {
  const MutexLock lock(mutex_);
  auto module = std::make_unique<Module>();
  module->device = device;
  module->image = std::move(image);
  const auto handle = reinterpret_cast<CUmodule>(module.get());
  modules_[handle] = std::move(module);
  return handle;
}

CUresult Process::RemoveModule(CUmodule handle) {
  const MutexLock lock(mutex_);
  return modules_.erase(handle) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

void Process::Load(int device) {
  pthread_t nobody{};
  while (!loading_.compare_exchange_weak(nobody, ::pthread_self())) {
    nobody = {};
    ::usleep(kPollMicroseconds);
  }
  WaitForDevice(device);
  loading_ = pthread_t{};
}

void Process::WaitToFree(int device) {
  settings_.frees_hold_up ? Load(device) : WaitForDevice(device);
}

void Process::AwaitLoading() {
  for (;;) {
    const pthread_t loading = loading_;
    if (loading == pthread_t{} || loading == ::pthread_self()) return;
    ::usleep(kPollMicroseconds);
  }
}

CUresult Process::GetFunction(CUmodule handle, const std::string& name, CUfunction* function,
                              bool* is_new) {
  const MutexLock lock(mutex_);
  const auto module = modules_.find(handle);
  if (module == modules_.end()) return CUDA_ERROR_INVALID_HANDLE;
  // PTX has the names as they are; a fat binary may be compressed.
  const std::string& image = module->second->image;
  if (!image.empty() && image.find(name) == std::string::npos) return CUDA_ERROR_NOT_FOUND;
  const RingdEmulatorKernel* const kernel = FindKernel(name);
  if (kernel == nullptr) return CUDA_ERROR_NOT_FOUND;
  auto& found = module->second->functions[name];
  if (found == nullptr) {
    found = std::make_unique<Function>();
    found->kernel = kernel;
    found->device = module->second->device;
    *is_new = true;
  }
  *function = reinterpret_cast<CUfunction>(found.get());
  return CUDA_SUCCESS;
}

const Function* Process::FindFunction(CUfunction handle) {
  const MutexLock lock(mutex_);
  for (const auto& [module, content] : modules_) {
    for (const auto& [name, function] : content->functions) {
      if (reinterpret_cast<CUfunction>(function.get()) == handle) return function.get();
    }
  }
  return nullptr;
}

}  // namespace ringd::emulator
