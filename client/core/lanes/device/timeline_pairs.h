// Which pair of the slab's timeline the next operation gets.
#ifndef RINGD_CLIENT_CORE_LANES_DEVICE_TIMELINE_PAIRS_H_
#define RINGD_CLIENT_CORE_LANES_DEVICE_TIMELINE_PAIRS_H_

#include <array>
#include <cstdint>
#include <optional>

#include "backends/cuda/timeline.h"

namespace ringd::client {

// Pairs go round in turn. A pair whose last operation is still in flight must not be used: on
// another stream its later value might be written first. Nor one whose operation has ended badly,
// since nobody waits for it any more.
//
// Thread safety: none.
class TimelinePairs {
 public:
  std::uint32_t next() const noexcept { return next_; }
  // The operation that had the pair last; nothing: none had. Requirement: pair < kTimelinePairs.
  std::optional<std::uint64_t> LastOf(std::uint32_t pair) const noexcept { return last_[pair]; }
  // The same of the next one.
  std::optional<std::uint64_t> LastOfNext() const noexcept { return last_[next_]; }

  // Passes the next pair over.
  void Skip() noexcept { next_ = (next_ + 1) % kTimelinePairs; }
  // The next pair is that operation's.
  void Use(std::uint64_t sequence) noexcept {
    last_[next_] = sequence;
    Skip();
  }

 private:
  std::uint32_t next_ = 0;
  std::array<std::optional<std::uint64_t>, kTimelinePairs> last_;
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_LANES_DEVICE_TIMELINE_PAIRS_H_
