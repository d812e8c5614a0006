#include "daemon/sessions/session_resources.h"

#include <utility>

#include "absl/status/statusor.h"

namespace ringd {

absl::Status SessionResources::MapMemory() {
  if (segment.data() != nullptr && arena.data() != nullptr) return absl::OkStatus();
  absl::StatusOr<MemoryMapping> mapped_segment =
      MemoryMapping::MapSealed(segment_fd.get(), layout.segment_bytes());
  if (!mapped_segment.ok()) return mapped_segment.status();
  absl::StatusOr<MemoryMapping> mapped_arena =
      MemoryMapping::MapSealed(arena_fd.get(), arena_bytes);
  if (!mapped_arena.ok()) return mapped_arena.status();
  segment = *std::move(mapped_segment);
  arena = *std::move(mapped_arena);
  return absl::OkStatus();
}

}  // namespace ringd
