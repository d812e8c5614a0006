// How a failure gets across the C interface: as a code, and as words for ringd_last_error.
#ifndef RINGD_CLIENT_CORE_API_FAILURES_H_
#define RINGD_CLIENT_CORE_API_FAILURES_H_

#include <exception>
#include <new>

#include "absl/status/status.h"
#include "client/ringd.h"

namespace ringd::client {

// Thread safety: any thread; the words are each thread's own.

// The words of this thread's last failure; empty: there was none. Until its next one.
const char* LastErrorText() noexcept;

// Keeps the words of a failure, if there is memory for them.
ringd_status Report(const absl::Status& status) noexcept;
ringd_status ReportInvalid(const char* text) noexcept;

// Runs `body`, which returns an absl::Status; nothing that is thrown gets past it.
template <typename Body>
ringd_status Guarded(Body body) noexcept {
  try {
    return Report(body());
  } catch (const std::bad_alloc&) {
    return Report(absl::ResourceExhaustedError("out of memory"));
  } catch (const std::exception& error) {
    return Report(absl::InternalError(error.what()));
  } catch (...) {
    return Report(absl::InternalError("an unknown exception"));
  }
}

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_API_FAILURES_H_
