#include "tests/gpu/emulator/nccl/cuda_access.h"

#include <dlfcn.h>

#include <cstring>
#include <string>

#include "tests/gpu/emulator/nccl/last_error.h"

namespace ringd::emulator {
namespace {

constexpr char kLibrary[] = "libcuda.so.1";

// Makes a device's primary context the thread's current one meanwhile, as CUDA's run time does.
class OnDevice {
 public:
  OnDevice(const CudaDriver& driver, int device) : driver_(driver), device_(device) {
    CUcontext context = nullptr;
    has_context_ = driver_.cuDevicePrimaryCtxRetain(&context, device_) == CUDA_SUCCESS;
    driver_.cuCtxGetCurrent(&before_);
    if (has_context_) driver_.cuCtxSetCurrent(context);
  }
  ~OnDevice() {
    driver_.cuCtxSetCurrent(before_);
    if (has_context_) driver_.cuDevicePrimaryCtxRelease(device_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  const CudaDriver& driver_;
  const int device_;
  CUcontext before_ = nullptr;
  bool has_context_ = false;
};

const CudaAccess* Open() {
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr || ::dlsym(library, "ringd_emulator_device_alias") == nullptr) {
    return nullptr;
  }
  auto opened = CudaDriver::Open(kLibrary);
  if (!opened.ok()) return nullptr;
  auto* const access = new CudaAccess;
  access->driver = *std::move(opened);
  const auto find = [library](auto& function, const char* name) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
  };
  find(access->alias, "ringd_emulator_device_alias");
  find(access->enqueue, "ringd_emulator_enqueue");
  find(access->stream_device, "ringd_emulator_stream_device");
  return access;
}

}  // namespace

const CudaAccess* CudaAccess::Find() {
  static const CudaAccess* const access = Open();
  if (access == nullptr) SetLastError("the process has not opened the emulated CUDA driver");
  return access;
}

int CudaAccess::CurrentDevice() const {
  CUcontext context = nullptr;
  if (driver->cuCtxGetCurrent(&context) != CUDA_SUCCESS) return -1;
  if (context == nullptr && (driver->cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
                             driver->cuCtxSetCurrent(context) != CUDA_SUCCESS)) {
    return -1;
  }
  CUdevice device = -1;
  return driver->cuCtxGetDevice(&device) == CUDA_SUCCESS ? device : -1;
}

int CudaAccess::ComputeMajorOf(int device) const {
  int major = -1;
  const CUresult result =
      driver->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  return result == CUDA_SUCCESS ? major : -1;
}

void* CudaAccess::AllocateHost(int device) const {
  const OnDevice on(*driver, device);
  constexpr std::size_t kBytes = 8;
  void* memory = nullptr;
  return driver->cuMemHostAlloc(&memory, kBytes, 0) == CUDA_SUCCESS ? memory : nullptr;
}

void CudaAccess::FreeHost(int device, void* memory) const {
  if (memory == nullptr) return;
  const OnDevice on(*driver, device);
  // After a fatal error there is nothing to wait for.
  (void)driver->cuMemFreeHost(memory);
}

bool CudaAccess::UuidOf(int device, Uuid* uuid) const {
  CUuuid found{};
  if (driver->cuDeviceGetUuid(&found, device) != CUDA_SUCCESS) return false;
  std::memcpy(uuid->data(), found.bytes, uuid->size());
  return true;
}

}  // namespace ringd::emulator
