// Anonymous shared memory whose size nobody can change any more.
#ifndef RINGD_PROTO_BASE_MEMFD_H_
#define RINGD_PROTO_BASE_MEMFD_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/memory_mapping.h"
#include "proto/base/unique_fd.h"

namespace ringd {

// Creates a memfd of `bytes` zero bytes, sealed with F_SEAL_SHRINK, F_SEAL_GROW and F_SEAL_SEAL, so
// that whoever maps it can't be made to fault by another's truncation. Pages come into being when
// they are first touched. `name` shows in /proc/<pid>/maps.
absl::StatusOr<UniqueFd> CreateSealedMemfd(const std::string& name, std::size_t bytes);

// The same, where only the mapping that comes with it can write (F_SEAL_FUTURE_WRITE): whoever gets
// the descriptor maps it with MemoryMapping::MapReadOnly.
struct PublishedMemory {
  UniqueFd fd;
  MemoryMapping mapping;
};
absl::StatusOr<PublishedMemory> CreatePublishedMemfd(const std::string& name, std::size_t bytes);

// kFailedPrecondition unless `fd` carries the seals above: a client checks what it was sent.
absl::Status CheckSealed(int fd);

}  // namespace ringd

#endif  // RINGD_PROTO_BASE_MEMFD_H_
