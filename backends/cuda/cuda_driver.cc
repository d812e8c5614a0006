#include "backends/cuda/cuda_driver.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"

namespace ringd {
namespace {

// How a driver finds its functions. cuGetProcAddress gives the variant of a version, from CUDA 12.0
// on; an older driver has each variant under a name of its own.
class Symbols {
 public:
  Symbols(void* library, const std::string& file)
      : library_(library),
        file_(file),
        get_(reinterpret_cast<PFN_cuGetProcAddress_v12000>(
            ::dlsym(library, "cuGetProcAddress_v2"))) {}

  absl::Status Find(const char* name, int since, const char* symbol, void** function) const {
    *function = nullptr;
    if (get_ != nullptr) {
      CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
      const CUresult result =
          get_(name, function, since, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &found);
      if (result != CUDA_SUCCESS) *function = nullptr;
    } else {
      *function = ::dlsym(library_, symbol);
    }
    if (*function != nullptr) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(file_, " has no function ", name, " of CUDA ",
                                                      CudaVersionText(since), " (", symbol, ")"));
  }

 private:
  void* const library_;
  const std::string& file_;
  const PFN_cuGetProcAddress_v12000 get_;
};

// The version needs no variant, and comes before everything else.
absl::StatusOr<int> ReadVersion(void* library, const std::string& file) {
  const auto get =
      reinterpret_cast<PFN_cuDriverGetVersion_v2020>(::dlsym(library, "cuDriverGetVersion"));
  if (get == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(file, " is no CUDA driver: it has no function cuDriverGetVersion"));
  }
  int version = 0;
  const CUresult result = get(&version);
  if (result != CUDA_SUCCESS) {
    return absl::FailedPreconditionError(
        absl::StrCat(file, ": cuDriverGetVersion failed with CUDA error ", result));
  }
  if (version < kMinimumCudaVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        file, " is a driver for CUDA ", CudaVersionText(version), "; ringd needs one for CUDA ",
        CudaVersionText(kMinimumCudaVersion), " or newer"));
  }
  return version;
}

}  // namespace

std::string CudaVersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

absl::StatusOr<std::unique_ptr<const CudaDriver>> CudaDriver::Open(const std::string& file) {
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::NotFoundError(absl::StrCat("the CUDA driver can't be loaded: ", ::dlerror()));
  }
  const absl::StatusOr<int> version = ReadVersion(library, file);
  if (!version.ok()) return version.status();
  auto driver = std::make_unique<CudaDriver>();
  driver->file = file;
  driver->version = *version;
  const Symbols symbols(library, file);
#define X(name, since, symbol)                                                         \
  if (absl::Status found =                                                             \
          symbols.Find(#name, since, symbol, reinterpret_cast<void**>(&driver->name)); \
      !found.ok()) {                                                                   \
    return found;                                                                      \
  }
  RINGD_CUDA_FUNCTIONS(X)
#undef X
  return driver;
}

absl::Status CudaStatus(const CudaDriver& driver, absl::string_view what, CUresult result) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  const char* name = nullptr;
  const char* text = nullptr;
  // They write null for a code that is newer than the driver.
  driver.cuGetErrorName(result, &name);
  driver.cuGetErrorString(result, &text);
  const std::string message =
      absl::StrCat(what, ": ", name == nullptr ? absl::StrCat("CUDA error ", result) : name,
                   text == nullptr ? "" : ", ", text == nullptr ? "" : text);
  if (IsFatal(result)) return absl::AbortedError(message);
  switch (static_cast<int>(result)) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return absl::ResourceExhaustedError(message);
    case CUDA_ERROR_NOT_READY:
    case CUDA_ERROR_MPS_CONNECTION_FAILED:
    case CUDA_ERROR_MPS_RPC_FAILURE:
    case CUDA_ERROR_MPS_SERVER_NOT_READY:
    case CUDA_ERROR_MPS_MAX_CLIENTS_REACHED:
    case CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED:
      return absl::UnavailableError(message);
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_STUB_LIBRARY:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_SYSTEM_NOT_READY:
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
    // Of the kernels' images: this driver is too old for them.
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
      return absl::FailedPreconditionError(message);
    default:
      return absl::InternalError(message);
  }
}

// After most of these, says CUDA, the process must be ended and started again. The others end the
// context with all its memory, which for ringd is the same.
bool IsFatal(CUresult result) {
  switch (static_cast<int>(result)) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
      return true;
    default:
      return false;
  }
}

}  // namespace ringd
