// Turns errno into an absl::Status that says what was attempted.
#ifndef RINGD_PROTO_BASE_ERRNO_STATUS_H_
#define RINGD_PROTO_BASE_ERRNO_STATUS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ringd {

// "<what>: <strerror(error)>", with the code that fits: ENOENT is kNotFound, EACCES and EPERM are
// kPermissionDenied, ECONNREFUSED and ECONNRESET kUnavailable, ENOMEM and EMFILE
// kResourceExhausted, ETIMEDOUT kDeadlineExceeded, everything else kInternal.
absl::Status ErrnoStatus(int error, absl::string_view what);

}  // namespace ringd

#endif  // RINGD_PROTO_BASE_ERRNO_STATUS_H_
