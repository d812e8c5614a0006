#include "tests/gpu/emulator/nccl/communicator.h"

#include <chrono>
#include <cstdlib>
#include <deque>
#include <thread>

#include "tests/gpu/emulator/nccl/cuda_access.h"
#include "tests/gpu/emulator/nccl/last_error.h"
#include "tests/gpu/emulator/nccl/settings.h"

namespace ringd::emulator {
namespace {

constexpr std::chrono::microseconds kNap{200};

// Never destroyed: threads of streams use them until the process ends.
struct Registry {
  Mutex mutex;
  std::map<const void*, std::shared_ptr<Communicator>> alive ABSL_GUARDED_BY(mutex);
  int next_operator ABSL_GUARDED_BY(mutex) = kNcclBuiltInOps;
};
Registry& TheRegistry() {
  static Registry* const registry = new Registry;
  return *registry;
}

struct Order {
  struct Place {
    std::uint64_t ticket;
    const Communicator* owner;
  };
  Mutex mutex;
  std::map<int, std::deque<Place>> waiting ABSL_GUARDED_BY(mutex);
  std::uint64_t last ABSL_GUARDED_BY(mutex) = 0;
};
Order& TheOrder() {
  static Order* const order = new Order;
  return *order;
}

bool AllowsSeveralRanksOnAGpu() {
  const char* const value = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return value != nullptr && *value == '1';
}

}  // namespace

std::shared_ptr<Communicator> Communicator::Create(int device, bool is_blocking) {
  std::shared_ptr<Communicator> made(new Communicator(device, is_blocking));
  Registry& registry = TheRegistry();
  const MutexLock lock(registry.mutex);
  registry.alive[made->handle()] = made;
  return made;
}

std::shared_ptr<Communicator> Communicator::Find(const NcclComm* handle) {
  Registry& registry = TheRegistry();
  const MutexLock lock(registry.mutex);
  const auto found = registry.alive.find(handle);
  if (found != registry.alive.end()) return found->second;
  SetLastError("there is no such communicator, or no longer");
  return nullptr;
}

Communicator::Communicator(int device, bool is_blocking)
    : device_(device), is_blocking_(is_blocking), flag_(CudaAccess::Find()->AllocateHost(device)) {}

void Communicator::Free() {
  const std::shared_ptr<Communicator> self = shared_from_this();
  CudaAccess::Find()->FreeHost(device_, flag_);
  Registry& registry = TheRegistry();
  const MutexLock lock(registry.mutex);
  registry.alive.erase(handle());
}

NcclResult Communicator::Join(const std::string& name, int size, int rank) {
  const GiveUp give_up = [this] { return aborted(); };
  if (const Fault* const fault = FindFault(rank, Fault::kInit)) {
    if (fault->kind == Fault::Kind::kError) {
      return Failed(static_cast<NcclResult>(fault->value), "an error that was asked for");
    }
    const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(fault->value);
    while (!aborted() &&
           (fault->kind == Fault::Kind::kHang || std::chrono::steady_clock::now() < until)) {
      std::this_thread::sleep_for(kNap);
    }
  }
  const NcclResult joined = World::Join(name, size, rank, device_, give_up, &world_);
  if (joined != kNcclSuccess) return joined;
  has_joined_.store(true, std::memory_order_seq_cst);
  if (aborted()) Abort();
  if (const int other = world_->FindSameDevice(); other >= 0 && !AllowsSeveralRanksOnAGpu()) {
    return Failed(kNcclInvalidUsage, "duplicate GPU: ranks " + std::to_string(rank) + " and " +
                                         std::to_string(other) + " have the same one");
  }
  return kNcclSuccess;
}

void Communicator::Fail(NcclResult error, const std::string& text) {
  SetLastError(text);
  state_.store(error, std::memory_order_release);
}

NcclResult Communicator::CheckReady() const {
  const NcclResult now = state();
  if (now != kNcclInProgress) return now;
  return Failed(kNcclInvalidArgument,
                "the communicator is used before its previous operation returned ncclSuccess");
}

NcclResult Communicator::Start(const Job& job) {
  if (is_blocking_) return job();
  SetBusy();
  std::thread([self = shared_from_this(), job] {
    std::this_thread::sleep_for(DrawDelay());
    const NcclResult result = job();
    NcclResult busy = kNcclInProgress;
    self->state_.compare_exchange_strong(busy, result, std::memory_order_acq_rel);
  }).detach();
  return kNcclInProgress;
}

void Communicator::SetBusy() { state_.store(kNcclInProgress, std::memory_order_release); }

void Communicator::SetIdle() {
  NcclResult busy = kNcclInProgress;
  state_.compare_exchange_strong(busy, kNcclSuccess, std::memory_order_acq_rel);
}

void Communicator::Abort() {
  has_aborted_.store(true, std::memory_order_seq_cst);
  // Other hosts' ranks find their connections closed.
  if (has_joined_.load(std::memory_order_seq_cst)) {
    world_->own().has_aborted.store(1, std::memory_order_release);
  }
  DeviceOrder::RemoveAllOf(device_, this);
}

NcclResult Communicator::Finalize() {
  while (ended_.load(std::memory_order_acquire) < launched_.load(std::memory_order_acquire)) {
    if (aborted()) return kNcclInternalError;
    std::this_thread::sleep_for(kNap);
  }
  world_->own().has_finalized.store(1, std::memory_order_release);
  for (int rank = 0; rank < world_->size(); ++rank) {
    const RankCell& cell = world_->cell(rank);
    while (world_->IsOnThisHost(rank) && cell.has_finalized.load(std::memory_order_acquire) == 0 &&
           cell.has_aborted.load(std::memory_order_acquire) == 0) {
      if (aborted()) return kNcclInternalError;
      std::this_thread::sleep_for(kNap);
    }
  }
  has_finalized_.store(true, std::memory_order_release);
  return kNcclSuccess;
}

std::uint64_t Communicator::BeginLaunch() {
  return launched_.fetch_add(1, std::memory_order_acq_rel) + 1;
}

void Communicator::EndCollective() { ended_.fetch_add(1, std::memory_order_acq_rel); }

NcclResult Communicator::AddOperator(const PreMulSum& made, NcclRedOp* op) {
  {
    // A number of its own in the whole process, so that another communicator's is no valid one.
    Registry& registry = TheRegistry();
    const MutexLock lock(registry.mutex);
    *op = static_cast<NcclRedOp>(registry.next_operator++);
  }
  const MutexLock lock(mutex_);
  operators_[*op] = made;
  return kNcclSuccess;
}

bool Communicator::RemoveOperator(NcclRedOp op) {
  const MutexLock lock(mutex_);
  return operators_.erase(op) == 1;
}

std::optional<PreMulSum> Communicator::FindOperator(NcclRedOp op) const {
  const MutexLock lock(mutex_);
  const auto found = operators_.find(op);
  if (found == operators_.end()) return std::nullopt;
  return found->second;
}

NcclResult Communicator::CheckRegistered() const {
  if (registered_.IsThere(device_)) return kNcclSuccess;
  return Failed(kNcclUnhandledCudaError, "memory has gone that was still registered");
}

std::uint64_t DeviceOrder::Append(int device, const Communicator* owner) {
  Order& order = TheOrder();
  const MutexLock lock(order.mutex);
  order.waiting[device].push_back({++order.last, owner});
  return order.last;
}

bool DeviceOrder::IsFirst(int device, std::uint64_t ticket) {
  Order& order = TheOrder();
  const MutexLock lock(order.mutex);
  const std::deque<Order::Place>& waiting = order.waiting[device];
  return !waiting.empty() && waiting.front().ticket == ticket;
}

void DeviceOrder::Remove(int device, std::uint64_t ticket) {
  Order& order = TheOrder();
  const MutexLock lock(order.mutex);
  std::erase_if(order.waiting[device],
                [ticket](const Order::Place& place) { return place.ticket == ticket; });
}

void DeviceOrder::RemoveAllOf(int device, const Communicator* owner) {
  Order& order = TheOrder();
  const MutexLock lock(order.mutex);
  std::erase_if(order.waiting[device],
                [owner](const Order::Place& place) { return place.owner == owner; });
}

}  // namespace ringd::emulator
