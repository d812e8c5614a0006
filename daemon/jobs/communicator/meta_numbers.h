// A communicator's numbers for what its tensors are, all but their names.
#ifndef RINGD_DAEMON_JOBS_COMMUNICATOR_META_NUMBERS_H_
#define RINGD_DAEMON_JOBS_COMMUNICATOR_META_NUMBERS_H_

#include <cstdint>
#include <string>
#include <unordered_map>

#include "absl/status/statusor.h"
#include "daemon/schedule/protocol/tensor_meta.h"

namespace ringd {

// Ranks compare these numbers where ringd does not see it, so one is never used for two metas: a
// meta that nobody holds any more is forgotten, and gets another number when it comes again.
//
// Thread safety: none; the progress thread owns it.
class MetaNumbers {
 public:
  struct Held {
    std::uint32_t id = 0;
    bool added = false;  // nobody held it before
  };
  // One more holds this meta, of which `key` is the MetaKey.
  //   kResourceExhausted: there are no numbers left.
  absl::StatusOr<Held> Hold(const std::string& key, const TensorMeta& meta);
  // One less does. True if it was the last, and the meta is forgotten. Requirement: somebody holds
  // it.
  bool Release(std::uint32_t id);

  // Null if nobody holds it. Stable until Release.
  const TensorMeta* Find(std::uint32_t id) const noexcept {
    const auto found = by_id_.find(id);
    return found == by_id_.end() ? nullptr : &found->second.meta;
  }
  std::size_t count() const noexcept { return by_id_.size(); }

 private:
  struct Entry {
    TensorMeta meta;
    std::string key;
    std::uint32_t holders = 0;
  };

  std::uint32_t next_ = 0;
  std::unordered_map<std::uint32_t, Entry> by_id_;
  std::unordered_map<std::string, std::uint32_t> ids_;  // by key
};

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_COMMUNICATOR_META_NUMBERS_H_
