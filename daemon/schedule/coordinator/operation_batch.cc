#include "daemon/schedule/coordinator/operation_batch.h"

#include <utility>

namespace ringd {

void OperationBatch::Add(const std::string& name, const TensorMeta& meta, bool follows_wait) {
  if (follows_wait && NeedsLaunch(meta)) {
    for (Group& group : groups_) group.open = false;
  }
  const std::size_t bytes = ByteCount(meta);
  for (Group& group : groups_) {
    if (!group.open || !CanFuse(group.meta, meta)) continue;
    if (group.bytes + bytes <= threshold_bytes_) {
      group.bytes += bytes;
      group.names.push_back(name);
      return;
    }
    // Filling up an older operation with later, smaller tensors would delay nothing, but it would
    // change their order for no gain.
    group.open = false;
  }
  groups_.push_back({meta, bytes, true, {name}});
}

std::vector<std::vector<std::string>> OperationBatch::Take() {
  std::vector<std::vector<std::string>> operations;
  operations.reserve(groups_.size());
  for (Group& group : groups_) operations.push_back(std::move(group.names));
  groups_.clear();
  return operations;
}

}  // namespace ringd
