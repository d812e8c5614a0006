#include "daemon/jobs/communicator/meta_numbers.h"

namespace ringd {

absl::StatusOr<MetaNumbers::Held> MetaNumbers::Hold(const std::string& key,
                                                    const TensorMeta& meta) {
  const auto known = ids_.find(key);
  if (known != ids_.end()) {
    ++by_id_.find(known->second)->second.holders;
    return Held{known->second, false};
  }
  if (next_ == UINT32_MAX) {
    return absl::ResourceExhaustedError(
        "tensors were described in 2^32 ways one after the other: start the job anew");
  }
  const std::uint32_t id = next_++;
  by_id_.emplace(id, Entry{meta, key, 1});
  ids_.emplace(key, id);
  return Held{id, true};
}

bool MetaNumbers::Release(std::uint32_t id) {
  const auto found = by_id_.find(id);
  if (--found->second.holders > 0) return false;
  ids_.erase(found->second.key);
  by_id_.erase(found);
  return true;
}

}  // namespace ringd
