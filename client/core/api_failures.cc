#include "client/core/api_failures.h"

#include <string>
#include <utility>

namespace ringd::client {
namespace {

// This thread's last failure; null: there was none. It outlives what takes it down with the thread:
// on the main thread, exit handlers and the destructors of statics may fail after that.
thread_local constinit std::string* last_error = nullptr;

struct LastErrorOwner {
  ~LastErrorOwner() { delete std::exchange(last_error, nullptr); }
};

std::string& LastError() {
  if (last_error == nullptr) {
    thread_local LastErrorOwner owner;
    last_error = new std::string();
  }
  return *last_error;
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

const char* LastErrorText() noexcept { return last_error == nullptr ? "" : last_error->c_str(); }

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
