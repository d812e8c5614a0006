#include "backends/device/communicator_registry.h"

namespace ringd {

void CommunicatorRegistry::Add(DeviceCommunicatorId id, std::shared_ptr<NcclCommunicator> nccl) {
  const MutexLock lock(mutex_);
  all_[id] = std::move(nccl);
}

void CommunicatorRegistry::Remove(DeviceCommunicatorId id) {
  const MutexLock lock(mutex_);
  all_.erase(id);
}

void CommunicatorRegistry::PrepareAbort(DeviceCommunicatorId id, absl::string_view reason) {
  const MutexLock lock(mutex_);
  const auto found = all_.find(id);
  if (found != all_.end()) found->second->PrepareAbort(reason);
}

void CommunicatorRegistry::PrepareAbortAll(absl::string_view reason) {
  const MutexLock lock(mutex_);
  for (const auto& [id, nccl] : all_) nccl->PrepareAbort(reason);
}

std::vector<std::pair<DeviceCommunicatorId, NcclDescription>> CommunicatorRegistry::Describe()
    const {
  const MutexLock lock(mutex_);
  std::vector<std::pair<DeviceCommunicatorId, NcclDescription>> all;
  for (const auto& [id, nccl] : all_) all.emplace_back(id, nccl->Describe());
  return all;
}

}  // namespace ringd
