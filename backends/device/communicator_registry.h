// The communicators of a GPU's thread, for those who can't wait for that thread.
#ifndef RINGD_BACKENDS_DEVICE_COMMUNICATOR_REGISTRY_H_
#define RINGD_BACKENDS_DEVICE_COMMUNICATOR_REGISTRY_H_

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "backends/device/device_bucket.h"
#include "backends/nccl/nccl_communicator.h"
#include "proto/base/mutex.h"

namespace ringd {

// Thread safety: any thread. None of the methods waits for more than a short lock.
class CommunicatorRegistry {
 public:
  void Add(DeviceCommunicatorId id, std::shared_ptr<NcclCommunicator> nccl)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Remove(DeviceCommunicatorId id) ABSL_LOCKS_EXCLUDED(mutex_);

  // As NcclCommunicator::PrepareAbort; one that is not there is none.
  void PrepareAbort(DeviceCommunicatorId id, absl::string_view reason) ABSL_LOCKS_EXCLUDED(mutex_);
  void PrepareAbortAll(absl::string_view reason) ABSL_LOCKS_EXCLUDED(mutex_);

  std::vector<std::pair<DeviceCommunicatorId, NcclDescription>> Describe() const
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable Mutex mutex_;
  std::map<DeviceCommunicatorId, std::shared_ptr<NcclCommunicator>> all_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_DEVICE_COMMUNICATOR_REGISTRY_H_
