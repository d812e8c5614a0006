#include "backends/device/device_slabs.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace ringd {

std::optional<DeviceSlabCreated> DeviceSlabs::Try(const Waiting& wanted, Clock::time_point now) {
  DeviceSlabCreated created{wanted.id, absl::OkStatus(), UniqueFd(), 0, wanted.context->uuid(), 0};
  if (entries_.contains(wanted.id)) {
    created.status =
        absl::AlreadyExistsError(absl::StrCat("slab ", wanted.id.value(), " is there"));
    return created;
  }
  auto slab = DeviceSlab::Create(wanted.context, wanted.bytes, setting_);
  if (absl::IsResourceExhausted(slab.status()) && now < wanted.deadline) return std::nullopt;
  created.status = slab.status();
  if (!slab.ok()) return created;
  if (exports_) {
    auto descriptor = slab->Export();
    created.status = descriptor.status();
    if (!descriptor.ok()) return created;
    created.descriptor = *std::move(descriptor);
  }
  created.bytes = slab->bytes();
  created.address = slab->address();
  entries_.emplace(wanted.id, std::make_unique<Entry>(Entry{*std::move(slab)}));
  return created;
}

std::optional<DeviceSlabCreated> DeviceSlabs::Create(std::shared_ptr<const CudaContext> context,
                                                     DeviceSlabId id, std::size_t bytes,
                                                     Clock::time_point now) {
  Waiting wanted{std::move(context), id, bytes, now + kMemoryPatience, now + kMemoryPause};
  auto created = Try(wanted, now);
  if (!created) waiting_.push_back(std::move(wanted));
  return created;
}

std::optional<DeviceSlabCreated> DeviceSlabs::AdvanceWaiting(Clock::time_point now) {
  for (auto wanted = waiting_.begin(); wanted != waiting_.end(); ++wanted) {
    if (now < wanted->next_try) continue;
    wanted->next_try = now + kMemoryPause;
    auto created = Try(*wanted, now);
    if (!created) continue;
    waiting_.erase(wanted);
    return created;
  }
  return std::nullopt;
}

std::optional<DeviceSlabCreated> DeviceSlabs::Cancel(DeviceSlabId id, const absl::Status& status) {
  const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                  [id](const Waiting& wanted) { return wanted.id == id; });
  if (found == waiting_.end()) return std::nullopt;
  DeviceSlabCreated answer{id, status, UniqueFd(), 0, found->context->uuid(), 0};
  waiting_.erase(found);
  return answer;
}

std::optional<DeviceSlabCreated> DeviceSlabs::CancelFirst(const absl::Status& status) {
  if (waiting_.empty()) return std::nullopt;
  return Cancel(waiting_.front().id, status);
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

void DeviceSlabs::AddRegistration(DeviceSlabId id) { ++entries_.at(id)->registrations; }

void DeviceSlabs::RemoveRegistration(DeviceSlabId id) { --entries_.at(id)->registrations; }

bool DeviceSlabs::IsLeaving(DeviceSlabId id) const {
  const Entry& entry = *entries_.at(id);
  return entry.is_retired && entry.uses == 0;
}

bool DeviceSlabs::Retire(DeviceSlabId id) {
  const auto found = entries_.find(id);
  return found != entries_.end() && !std::exchange(found->second->is_retired, true);
}

std::vector<DeviceSlabId> DeviceSlabs::Sweep() {
  std::vector<DeviceSlabId> gone;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const Entry& one = *entry->second;
    if (one.is_retired && one.uses == 0 && one.registrations == 0) {
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

void DeviceSlabs::LeaveBehind() {
  std::vector<std::uint32_t> slots;
  for (std::uint32_t pair = 0; pair < kTimelinePairs; ++pair) slots.push_back(DoneSlot(pair));
  // After an error there is nobody to be told.
  for (const auto& [id, entry] : entries_) (void)entry->slab.timeline().Release(slots);
  Abandon();
}

}  // namespace ringd
