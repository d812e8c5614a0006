// Whole files, of any kind, without exceptions.
#ifndef RINGD_PROTO_BASE_READ_FILE_H_
#define RINGD_PROTO_BASE_READ_FILE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace ringd {

// The file's bytes, read to its end. A stream's iterators would throw where the kernel refuses to
// read what it has opened: /proc/PID/stat of a process that has been reaped meanwhile, for one.
//   kOutOfRange: it has more than `most_bytes`; the message says so.
//   Otherwise as ErrnoStatus: what open() or read() answered.
absl::StatusOr<std::string> ReadFile(const std::string& path, std::size_t most_bytes);

}  // namespace ringd

#endif  // RINGD_PROTO_BASE_READ_FILE_H_
