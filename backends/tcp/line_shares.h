// One engine's shares of the lines that it has in common with the node's other engines.
#ifndef RINGD_BACKENDS_TCP_LINE_SHARES_H_
#define RINGD_BACKENDS_TCP_LINE_SHARES_H_

#include <cstddef>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/tcp/line_turn.h"
#include "proto/base/memory_mapping.h"

namespace ringd {

// Both segments of proto/shm/line_shares.h, mapped, and this engine's turns: one for each line.
// All communicators of the engine share them.
//
// Thread safety: the progress thread only, but for Open.
// Ownership: owns the mappings and the turns; outlives the transport that it is given to.
class LineShares {
 public:
  // `roster`, `tags`: the supervisor's descriptors, which remain the caller's. `slot`: the
  // engine's.
  //   kInvalidArgument: they are not those segments, of this version, or there is no such slot.
  //   kFailedPrecondition: they are not sealed against resizing. Else what the kernel says.
  static absl::StatusOr<std::unique_ptr<LineShares>> Open(int roster, int tags, std::size_t slot);
  LineShares(const LineShares&) = delete;
  LineShares& operator=(const LineShares&) = delete;

  // The turn on the line to `host`; as long as this lives.
  LineTurn& TurnTo(absl::string_view host);

 private:
  LineShares(MemoryMapping roster, MemoryMapping tags, std::size_t slot)
      : roster_(std::move(roster)), tags_(std::move(tags)), slot_(slot) {}

  const LineRosterSegment& roster() const noexcept {
    return *reinterpret_cast<const LineRosterSegment*>(roster_.data());
  }
  LineTagsSegment& tags() const noexcept {
    return *reinterpret_cast<LineTagsSegment*>(tags_.data());
  }

  const MemoryMapping roster_;
  const MemoryMapping tags_;
  const std::size_t slot_;
  std::map<std::size_t, std::unique_ptr<LineTurn>> turns_;  // by line
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_TCP_LINE_SHARES_H_
