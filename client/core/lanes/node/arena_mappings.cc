#include "client/core/lanes/node/arena_mappings.h"

#include <sys/stat.h>

#include <cerrno>

#include "proto/base/errno_status.h"

namespace ringd::client {

absl::StatusOr<std::shared_ptr<const MemoryMapping>> ArenaMappings::Map(const UniqueFd& fd,
                                                                        std::uint64_t bytes) {
  struct stat file {};
  if (::fstat(fd.get(), &file) != 0) return ErrnoStatus(errno, "fstat of another rank's arena");
  MutexLock lock(mutex_);
  std::weak_ptr<const MemoryMapping>& known = by_file_[{file.st_dev, file.st_ino}];
  if (auto mapping = known.lock(); mapping != nullptr && mapping->size() == bytes) return mapping;
  absl::StatusOr<MemoryMapping> mapping = MemoryMapping::MapSealed(fd.get(), bytes);
  if (!mapping.ok()) return mapping.status();
  auto shared = std::make_shared<const MemoryMapping>(*std::move(mapping));
  known = shared;
  return shared;
}

}  // namespace ringd::client
