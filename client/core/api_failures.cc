#include "client/core/api_failures.h"

#include <string>

namespace ringd::client {
namespace {

// This thread's last failure. A function's static and not a global, so that a program that never
// fails never makes one.
std::string& LastError() {
  thread_local std::string text;
  return text;
}

ringd_status CodeOf(const absl::Status& status) noexcept {
  switch (status.code()) {
    // Codes that ringd.h does not offer.
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kDataLoss:
      return RINGD_INTERNAL;
    default:
      return static_cast<ringd_status>(status.code());
  }
}

}  // namespace

const char* LastErrorText() noexcept { return LastError().c_str(); }

ringd_status Report(const absl::Status& status) noexcept {
  if (status.ok()) return RINGD_OK;
  try {
    LastError().assign(status.message().data(), status.message().size());
  } catch (...) {
    // Without memory for words the code has to do.
  }
  return CodeOf(status);
}

ringd_status ReportInvalid(const char* text) noexcept {
  try {
    return Report(absl::InvalidArgumentError(text));
  } catch (...) {
    return RINGD_INVALID_ARGUMENT;
  }
}

}  // namespace ringd::client
