// The numbers of the node's engines, and what they share the lines to other nodes by.
#ifndef RINGD_DAEMON_SUPERVISOR_LINE_ROSTER_H_
#define RINGD_DAEMON_SUPERVISOR_LINE_ROSTER_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/memfd.h"
#include "proto/base/memory_mapping.h"
#include "proto/base/unique_fd.h"
#include "proto/shm/line_shares.h"

namespace ringd {

// Makes both segments of proto/shm/line_shares.h, and says who is in them. A slot is an engine's
// number in all segments that engines share, those of user_account.h too.
//
// A user has kMostEnginesOfUser at most, and the last slots are for users who have none, and for
// root: no users take all. A slot is given out again after all that were free longer.
//
// Thread safety: one thread at a time.
// Ownership: owns the segments; outlives its slots. Engines that have mapped them keep the memory.
class LineRoster {
 public:
  static constexpr std::size_t kMostEnginesOfUser = kMostEngines / 2;
  static constexpr std::size_t kKeptForOthers = 32;
  static constexpr std::size_t kKeptForRoot = 4;

  // An engine's place. When it goes, the engine wants no line any more, whatever it wrote.
  class Slot {
   public:
    Slot(LineRoster& roster, std::size_t number) noexcept : roster_(roster), number_(number) {}
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;
    ~Slot() { roster_.Remove(number_); }

    std::size_t number() const noexcept { return number_; }
    // For LineShares::Open(); the roster's. The engine can only read the first one.
    int roster_fd() const noexcept { return roster_.roster_.fd.get(); }
    int tags_fd() const noexcept { return roster_.tags_fd_.get(); }
    // The job's weight, of its next generation.
    void SetWeight(std::uint32_t weight) noexcept { roster_.SetWeight(number_, weight); }

   private:
    LineRoster& roster_;
    const std::size_t number_;
  };

  // What the kernel says.
  static absl::StatusOr<std::unique_ptr<LineRoster>> Create();
  LineRoster(const LineRoster&) = delete;
  LineRoster& operator=(const LineRoster&) = delete;

  // A place for an engine of this user whose job has this weight (proto/types/job_weight.h; what
  // is out of bounds is put within).
  //   kResourceExhausted: as CheckRoom.
  absl::StatusOr<std::unique_ptr<Slot>> Add(std::uint32_t weight, uid_t uid);
  // kResourceExhausted: the node, or the user, has as many engines as there may be.
  absl::Status CheckRoom(uid_t uid) noexcept;

 private:
  LineRoster(PublishedMemory roster, UniqueFd tags_fd, MemoryMapping tags);

  LineRosterSegment& roster() noexcept {
    return *reinterpret_cast<LineRosterSegment*>(roster_.mapping.data());
  }
  LineTagsSegment& tags() noexcept { return *reinterpret_cast<LineTagsSegment*>(tags_.data()); }
  void SetWeight(std::size_t slot, std::uint32_t weight) noexcept;
  void Remove(std::size_t slot) noexcept;
  void ClearWanting(std::size_t slot) noexcept;

  PublishedMemory roster_;
  const UniqueFd tags_fd_;
  const MemoryMapping tags_;
  std::vector<std::size_t> free_;  // the one that is free longest first
  std::vector<uid_t> users_;       // by slot, of those that are taken
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_LINE_ROSTER_H_
