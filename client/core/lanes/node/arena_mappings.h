// Other ranks' arenas, mapped once for all the communicators that this process has in common with
// them.
#ifndef RINGD_CLIENT_CORE_LANES_NODE_ARENA_MAPPINGS_H_
#define RINGD_CLIENT_CORE_LANES_NODE_ARENA_MAPPINGS_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "proto/base/memory_mapping.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"

namespace ringd::client {

// Thread safety: any thread may call anything.
// Ownership: a mapping lives as long as somebody holds it.
class ArenaMappings {
 public:
  // Maps `bytes` of the sealed file, unless it is mapped already. Errors as
  // MemoryMapping::MapSealed.
  absl::StatusOr<std::shared_ptr<const MemoryMapping>> Map(const UniqueFd& fd, std::uint64_t bytes);

 private:
  Mutex mutex_;
  std::map<std::pair<dev_t, ino_t>, std::weak_ptr<const MemoryMapping>> by_file_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_LANES_NODE_ARENA_MAPPINGS_H_
