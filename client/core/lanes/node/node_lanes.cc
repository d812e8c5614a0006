#include "client/core/lanes/node/node_lanes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ringd::client {

NodeLanes::~NodeLanes() {
  for (auto& chunk : slots_) delete chunk.load(std::memory_order_relaxed);
}

JobMemory& NodeLanes::MemoryOf(std::uint32_t number) {
  Lane& lane = lanes_[number];
  if (lane.memory == nullptr) {
    lane.memory = std::make_unique<JobMemory>(own_arena_, own_arena_bytes_, arenas_);
    if (!given_up_.ok()) lane.memory->GiveUp(given_up_);
  }
  return *lane.memory;
}

void NodeLanes::AddSegment(const JobSegmentNotice& notice, const UniqueFd& fd) {
  MutexLock lock(mutex_);
  MemoryOf(notice.communicator).AddSegment(notice, fd);
}

void NodeLanes::AddArena(const MemberArenaNotice& notice, const UniqueFd& fd) {
  MutexLock lock(mutex_);
  MemoryOf(notice.communicator).AddArena(notice, fd);
}

void NodeLanes::GiveUpMemory(const absl::Status& why) {
  MutexLock lock(mutex_);
  if (given_up_.ok()) given_up_ = why;
  for (auto& [number, lane] : lanes_) lane.memory->GiveUp(why);
}

absl::StatusOr<LaneUse> NodeLanes::Open(std::uint32_t number, Clock::time_point deadline,
                                        const Make& make) {
  JobMemory* memory = nullptr;
  {
    MutexLock lock(mutex_);
    memory = &MemoryOf(number);
  }
  if (absl::Status status = memory->Await(deadline); !status.ok()) return status;
  auto operations = make(*memory);
  MutexLock lock(mutex_);
  if (last_slot_ == kMostLanes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("this context has had ", kMostLanes, " communicators with one node"));
  }
  Lane& lane = lanes_.at(number);
  lane.operations = std::move(operations);
  lane.way.emplace(*lane.operations, staging_, state_);
  lane.slot = ++last_slot_;
  Show(lane.slot, lane.operations.get());
  LaneUse use;
  use.way = &*lane.way;
  use.tag = ringd_operation{lane.slot} << kTagShift;
  return use;
}

void NodeLanes::Show(std::uint32_t slot, LocalOperations* operations) {
  auto& chunk = slots_[slot / kChunk];
  if (chunk.load(std::memory_order_relaxed) == nullptr) {
    chunk.store(new Chunk{}, std::memory_order_release);
  }
  (*chunk.load(std::memory_order_relaxed))[slot % kChunk].store(operations,
                                                                std::memory_order_release);
}

void NodeLanes::Close(std::uint32_t number) {
  MutexLock lock(mutex_);
  const auto found = lanes_.find(number);
  if (found == lanes_.end()) return;
  if (found->second.operations != nullptr) {
    Show(found->second.slot, nullptr);
    consumed_before_ += found->second.operations->consumed();
  }
  lanes_.erase(found);
}

void NodeLanes::WakeAll() noexcept {
  MutexLock lock(mutex_);
  for (auto& [number, lane] : lanes_) {
    if (lane.operations != nullptr) lane.operations->WakeAll();
  }
}

void NodeLanes::GiveUp() noexcept {
  MutexLock lock(mutex_);
  for (auto& [number, lane] : lanes_) {
    if (lane.operations != nullptr) lane.operations->GiveUp();
  }
}

bool NodeLanes::AnyWaiter() const noexcept {
  MutexLock lock(mutex_);
  return std::any_of(lanes_.begin(), lanes_.end(), [](const auto& entry) {
    return entry.second.operations != nullptr && entry.second.operations->waiters() > 0;
  });
}

std::uint64_t NodeLanes::consumed() const noexcept {
  MutexLock lock(mutex_);
  std::uint64_t sum = consumed_before_;
  for (const auto& [number, lane] : lanes_) {
    if (lane.operations != nullptr) sum += lane.operations->consumed();
  }
  return sum;
}

}  // namespace ringd::client
