#include "backends/device/device_slabs.h"

#include <memory>
#include <utility>

namespace ringd {

bool DeviceSlabs::Add(DeviceSlabId id, DeviceSlab slab) {
  if (entries_.contains(id)) return false;
  entries_.emplace(id, std::make_unique<Entry>(Entry{std::move(slab)}));
  return true;
}

const DeviceSlab* DeviceSlabs::FindAny(DeviceSlabId id) const {
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : &found->second->slab;
}

const DeviceSlab* DeviceSlabs::Find(DeviceSlabId id) const {
  const auto found = entries_.find(id);
  return found == entries_.end() || found->second->is_retired ? nullptr : &found->second->slab;
}

void DeviceSlabs::Use(DeviceSlabId id) { ++entries_.at(id)->uses; }

void DeviceSlabs::Unuse(DeviceSlabId id) { --entries_.at(id)->uses; }

bool DeviceSlabs::Retire(DeviceSlabId id) {
  const auto found = entries_.find(id);
  return found != entries_.end() && !std::exchange(found->second->is_retired, true);
}

std::vector<DeviceSlabId> DeviceSlabs::Sweep() {
  std::vector<DeviceSlabId> gone;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    if (entry->second->is_retired && entry->second->uses == 0) {
      gone.push_back(entry->first);
      entry = entries_.erase(entry);
    } else {
      ++entry;
    }
  }
  return gone;
}

void DeviceSlabs::Abandon() {
  for (auto& [id, entry] : entries_) (void)entry.release();
  entries_.clear();
}

}  // namespace ringd
