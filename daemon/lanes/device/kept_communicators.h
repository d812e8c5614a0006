// NCCL communicators that have outlived their job, for the next one of its name.
#ifndef RINGD_DAEMON_LANES_DEVICE_KEPT_COMMUNICATORS_H_
#define RINGD_DAEMON_LANES_DEVICE_KEPT_COMMUNICATORS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/device/device_bucket.h"
#include "backends/device/device_launcher.h"
#include "backends/nccl/nccl_communicator.h"
#include "proto/base/clock.h"
#include "proto/types/ids.h"

namespace ringd {

// What NCCL does here for ranks that are not done yet, after a communicator has ended.
inline constexpr std::chrono::seconds kPartingPatience{2};

// One of them: what the ranks here have of it. All of them are connected, and nothing is in flight.
struct KeptCommunicator {
  struct Local {
    int rank = 0;  // NCCL's
    std::shared_ptr<DeviceLauncher> launcher;
    DeviceCommunicatorId communicator;
  };
  NcclIdBytes id{};  // by which its ranks once met
  // Operations that NCCL has carried out on it. If all ranks have the same number, and each has
  // ended what it began, they have carried out the same.
  std::uint64_t launched = 0;
  std::vector<Rank> ranks;  // of the job, in NCCL's order
  std::vector<Local> here;
};

// The engine's. Whether one can be used again no node knows alone, since others may have lost their
// part. So each node tells what its ranks have (Announce), and whoever would make an id names a
// kept one instead if all ranks have told of it (daemon/lanes/device/README.md).
//
// Thread safety: none; the progress thread owns it.
// Ownership: of the communicators in it: those that are taken are the taker's, all others are ended
//   by the time of their end.
// Invariant: what was announced stays until it is taken, has failed, Drop or EndAnnounced, or for
//   kAnnounced. Of is about what was announced for kUsable at most, so that other nodes have it
//   still.
class KeptCommunicators {
 public:
  // Of a job that makes and drops communicators for ever: the latest ones.
  static constexpr std::size_t kMost = 16;
  static constexpr std::chrono::minutes kUsable{10};
  static constexpr std::chrono::minutes kAnnounced{20};

  KeptCommunicators() = default;
  KeptCommunicators(const KeptCommunicators&) = delete;
  KeptCommunicators& operator=(const KeptCommunicators&) = delete;

  void Add(KeptCommunicator kept, Clock::time_point until);

  // Those in which `rank` of the job was, on the GPU of this launcher. Those of ranks that a job of
  // `size` has not are let go.
  std::vector<const KeptCommunicator*> Announce(Rank rank, int size, const DeviceLauncher& launcher,
                                                Clock::time_point now);
  // No job is about to take any: those that were announced have their time again.
  void EndAnnounced(Clock::time_point until);

  // That of these ranks, unless Name was called for it; null: there is none.
  const KeptCommunicator* Of(const std::vector<Rank>& ranks, Clock::time_point now) const;
  // It is promised to somebody.
  void Name(const NcclIdBytes& id);
  std::optional<KeptCommunicator> Take(const NcclIdBytes& id);

  // These ranks have another one now. Not what was named: that is another communicator's of theirs.
  void Drop(const std::vector<Rank>& ranks);
  void DropAll();
  // A communicator of one of them has failed, and has been aborted.
  void OnFailed(DeviceCommunicatorId communicator);
  // Lets those go whose time is over.
  void DropExpired(Clock::time_point now);

  bool empty() const noexcept { return all_.empty(); }

 private:
  struct Entry {
    KeptCommunicator kept;
    Clock::time_point until;
    std::optional<Clock::time_point> announced;  // first
    bool named = false;
  };

  // Nobody is busy with it any more.
  static void End(const KeptCommunicator& kept);
  // Other ranks may not be done with what has ended here a moment ago.
  static void LetGo(const KeptCommunicator& kept);

  std::list<Entry> all_;  // the latest first
};

}  // namespace ringd

#endif  // RINGD_DAEMON_LANES_DEVICE_KEPT_COMMUNICATORS_H_
