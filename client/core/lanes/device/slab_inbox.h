// The slab that ringd has made for this rank, between the thread that hears of it and the one that
// has asked for it.
#ifndef RINGD_CLIENT_CORE_LANES_DEVICE_SLAB_INBOX_H_
#define RINGD_CLIENT_CORE_LANES_DEVICE_SLAB_INBOX_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/attach/handshake.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"

namespace ringd::client {

// Thread safety: any thread may call anything. Only Await blocks.
class SlabInbox {
 public:
  struct Slab {
    DeviceSlabNotice notice{};
    UniqueFd descriptor;
  };

  // Replaces one that nobody has fetched.
  void Add(const DeviceSlabNotice& notice, UniqueFd descriptor) ABSL_LOCKS_EXCLUDED(mutex_) {
    const MutexLock lock(mutex_);
    slab_ = Slab{notice, std::move(descriptor)};
    changed_.NotifyAll();
  }

  // Nothing more will come: Await returns `why`, now and later.
  void GiveUp(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_) {
    const MutexLock lock(mutex_);
    if (problem_.ok()) problem_ = why;
    changed_.NotifyAll();
  }

  // Blocks until it is there, and takes it out. kDeadlineExceeded: it has not come.
  absl::StatusOr<Slab> Await(Clock::time_point deadline) ABSL_LOCKS_EXCLUDED(mutex_) {
    const MutexLock lock(mutex_);
    while (!slab_.has_value()) {
      if (!problem_.ok()) return problem_;
      if (Clock::now() >= deadline) {
        return absl::DeadlineExceededError("ringd has not sent the device memory that it has made");
      }
      changed_.WaitUntil(mutex_, deadline);
    }
    Slab slab = *std::move(slab_);
    slab_.reset();
    return slab;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<Slab> slab_ ABSL_GUARDED_BY(mutex_);
  absl::Status problem_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_LANES_DEVICE_SLAB_INBOX_H_
