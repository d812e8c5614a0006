// Writing, without exceptions.
#ifndef RINGD_PROTO_BASE_WRITE_ALL_H_
#define RINGD_PROTO_BASE_WRITE_ALL_H_

#include "absl/strings/string_view.h"

namespace ringd {

// Writes all of it to a file or a pipe, and waits as long as that takes. 0, or the errno that says
// why not: ENOSPC also if nothing more is taken without an error. Any thread.
int WriteAll(int file, absl::string_view bytes) noexcept;

}  // namespace ringd

#endif  // RINGD_PROTO_BASE_WRITE_ALL_H_
