#include "backends/nccl/nccl_api.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"

namespace ringd {
namespace {

// The version comes before everything else.
absl::StatusOr<int> ReadVersion(void* library, const std::string& file) {
  const auto get = reinterpret_cast<NcclResult (*)(int*)>(::dlsym(library, "ncclGetVersion"));
  if (get == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(file, " is no NCCL: it has no function ncclGetVersion"));
  }
  int version = 0;
  const NcclResult result = get(&version);
  if (result != kNcclSuccess) {
    return absl::FailedPreconditionError(
        absl::StrCat(file, ": ncclGetVersion failed with NCCL error ", static_cast<int>(result)));
  }
  if (version < kMinimumNcclVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat(file, " is NCCL ", NcclVersionText(version), "; ringd needs ",
                     NcclVersionText(kMinimumNcclVersion), " or newer"));
  }
  return version;
}

absl::StatusCode CodeOf(NcclResult result) {
  switch (static_cast<int>(result)) {
    case kNcclInProgress:
      return absl::StatusCode::kUnavailable;
    case kNcclTimeout:
      return absl::StatusCode::kDeadlineExceeded;
    case kNcclUnhandledCudaError:
    case kNcclSystemError:
    case kNcclRemoteError:
      return absl::StatusCode::kAborted;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

std::string NcclVersionText(int version) {
  const int scale = version < 10000 ? 1000 : 10000;
  return absl::StrCat(version / scale, ".", version % scale / 100, ".", version % 100);
}

absl::StatusOr<std::unique_ptr<const NcclApi>> NcclApi::Open(const std::string& file) {
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::NotFoundError(absl::StrCat("NCCL can't be loaded: ", ::dlerror()));
  }
  const absl::StatusOr<int> version = ReadVersion(library, file);
  if (!version.ok()) return version.status();
  auto api = std::make_unique<NcclApi>();
  api->file = file;
  api->version = *version;
#define X(name, ...) api->name = reinterpret_cast<decltype(api->name)>(::dlsym(library, #name));
  RINGD_NCCL_FUNCTIONS(X)
  RINGD_NCCL_NEWER_FUNCTIONS(X)
#undef X
#define X(name, ...)                                                                           \
  if (api->name == nullptr) {                                                                  \
    return absl::FailedPreconditionError(                                                      \
        absl::StrCat(file, ", NCCL ", NcclVersionText(*version), ", has no function " #name)); \
  }
  RINGD_NCCL_FUNCTIONS(X)
#undef X
  return api;
}

absl::Status NcclStatus(const NcclApi& api, NcclComm* comm, absl::string_view what,
                        NcclResult result) {
  if (result == kNcclSuccess) return absl::OkStatus();
  const char* const text = api.ncclGetErrorString(result);
  const char* const last = api.ncclGetLastError(comm);
  const bool has_last = last != nullptr && *last != '\0';
  return absl::Status(
      CodeOf(result),
      absl::StrCat(what, ": ", text == nullptr ? "NCCL error" : text, " (",
                   static_cast<int>(result), ")", has_last ? ": " : "", has_last ? last : ""));
}

}  // namespace ringd
