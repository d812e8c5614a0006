#include "backends/device/device_worker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ringd {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// How long to sleep between looks: while NCCL launches, which keeps the next bucket waiting; while
// something is on the GPU (no stream waits for this thread, only the completions); while ranks
// meet; and to see that an idle communicator has lost a rank.
constexpr microseconds kWhileLaunching{5};
constexpr microseconds kWhileBusy{20};
constexpr microseconds kWhileBusyAtMost{200};
constexpr microseconds kWhileWaiting{500};
constexpr milliseconds kWhileIdle{100};

}  // namespace

DeviceWorker::DeviceWorker(DeviceThreadOptions options, Emit emit)
    : options_(std::move(options)),
      emit_(std::move(emit)),
      unusable_(absl::FailedPreconditionError("the GPU has not been opened yet")),
      slabs_(options_.slab_setting, options_.exports_slabs) {}

DeviceWorker::~DeviceWorker() = default;

void DeviceWorker::Open() {
  const DeviceStep step(steps_, "opening the GPU", DeviceStep::Takes::kLong);
  auto opened = GpuParts::Open(options_.cuda_library, options_.nccl_library, options_.gpu);
  unusable_ = opened.status();
  std::optional<bool> is_under_mps;
  std::string nccl_version;
  constexpr bool kRegisters = true;
  if (opened.ok()) {
    gpu_ = *std::move(opened);
    current_.emplace(*gpu_.context);
    unusable_ = current_->status();
    is_under_mps = gpu_.context->is_under_mps();
    nccl_version = VersionOf(*gpu_.nccl);
  }
  emit_(DeviceOpened{unusable_, is_under_mps, std::move(nccl_version), kRegisters});
}

void DeviceWorker::CreateSlab(DeviceSlabId id, std::size_t bytes) {
  const DeviceStep step(steps_, "making a slab", DeviceStep::Takes::kLong);
  if (!unusable_.ok()) {
    emit_(DeviceSlabCreated{id, unusable_, UniqueFd(), 0, options_.gpu, 0});
  } else if (auto created = slabs_.Create(gpu_.context, id, bytes, Clock::now())) {
    Answer(*std::move(created));
  }
}

void DeviceWorker::Answer(DeviceSlabCreated created) {
  const absl::Status status = created.status;
  emit_(std::move(created));
  if (absl::IsAborted(status)) LoseDevice(status);
}

void DeviceWorker::CancelSlabs() {
  while (auto cancelled = slabs_.CancelFirst(unusable_)) emit_(*std::move(cancelled));
}

void DeviceWorker::ReleaseSlab(DeviceSlabId id, std::span<const std::uint32_t> slots) {
  if (auto cancelled = slabs_.Cancel(id, absl::CancelledError("nobody wants the slab now"))) {
    emit_(*std::move(cancelled));
  }
  const DeviceSlab* const slab = slabs_.Find(id);
  if (slab == nullptr) return;
  // Its trainer has gone or goes: an error concerns nobody.
  (void)slab->timeline().Release(slots);
  slabs_.Retire(id);
  SweepSlabs();
}

void DeviceWorker::ReleaseSlots(DeviceSlabId id, std::span<const std::uint32_t> slots) {
  const DeviceSlab* const slab = slabs_.Find(id);
  if (slab == nullptr) return;
  const DeviceStep step(steps_, "releasing waits");
  // Who waits would wait for ever, also after an error; there is nobody else to be told.
  (void)slab->timeline().Release(slots);
}

void DeviceWorker::SweepSlabs() {
  const DeviceStep step(steps_, "giving a slab back");
  for (const DeviceSlabId id : slabs_.Sweep()) emit_(DeviceSlabReleased{id});
}

void DeviceWorker::CreateId(std::uint64_t request) {
  const DeviceStep step(steps_, "ncclGetUniqueId", DeviceStep::Takes::kLong);
  NcclIdCreated created{request, unusable_, {}};
  if (created.status.ok()) {
    const auto id = NewNcclId(*gpu_.nccl);
    created.status = id.status();
    if (id.ok()) created.id = *id;
  }
  emit_(std::move(created));
}

void DeviceWorker::Connect(DeviceCommunicatorId id, const NcclIdBytes& nccl_id, int rank, int size,
                           std::size_t fusion_bytes, std::optional<DeviceSlabId> registered_slab,
                           Clock::time_point deadline) {
  const DeviceStep step(steps_, "beginning a communicator", DeviceStep::Takes::kLong);
  absl::Status status = unusable_;
  if (status.ok() && communicators_.contains(id)) {
    status = absl::AlreadyExistsError(absl::StrCat("communicator ", id.value(), " is there"));
  }
  if (status.ok()) {
    const DeviceCommunicator::Parts parts{gpu_, &slabs_, options_.fusion_setting,
                                          options_.on_launched};
    auto made = DeviceCommunicator::Begin(
        parts, id, {nccl_id, rank, size, options_.gpu, gpu_.context->compute_major()}, fusion_bytes,
        registered_slab, deadline);
    status = made.status();
    if (made.ok()) {
      registry_.Add(id, (*made)->nccl());
      communicators_[id] = *std::move(made);
    }
  }
  if (!status.ok()) emit_(DeviceCommunicatorConnected{id, status});
}

DeviceCommunicator* DeviceWorker::Find(DeviceCommunicatorId id) {
  const auto found = communicators_.find(id);
  return found == communicators_.end() ? nullptr : found->second.get();
}

void DeviceWorker::Abort(DeviceCommunicatorId id, absl::string_view reason) {
  const auto found = communicators_.find(id);
  if (found == communicators_.end()) return;
  Fail(found->second.get(), absl::AbortedError(reason));
  closing_.push_back(std::move(found->second));
  Forget(id);
}

void DeviceWorker::Forget(DeviceCommunicatorId id) {
  communicators_.erase(id);
  leaving_.erase(id);
  registry_.Remove(id);
}

void DeviceWorker::Disconnect(DeviceCommunicatorId id, Clock::time_point deadline) {
  if (communicators_.contains(id)) leaving_.emplace(id, deadline);
}

void DeviceWorker::LetGo(Clock::time_point now) {
  for (auto next = leaving_.begin(); next != leaving_.end();) {
    const auto [id, deadline] = *next++;
    DeviceCommunicator* const communicator = Find(id);
    const bool has_queued =
        std::any_of(queue_.begin(), queue_.end(),
                    [id = id](const DeviceBucket& bucket) { return bucket.communicator == id; });
    const bool is_connected = communicator->phase() == DeviceCommunicator::Phase::kReady ||
                              communicator->phase() == DeviceCommunicator::Phase::kLeaving;
    if (now >= deadline || !is_connected) {
      Abort(id, "the communicator was left before it had done its work");
    } else if (!has_queued && !communicator->has_work()) {
      const absl::StatusOr<bool> is_gone = communicator->Leave();
      if (!is_gone.ok()) {
        Abort(id, is_gone.status().message());
      } else if (*is_gone) {
        drained_.push_back(std::move(communicators_[id]));
        Forget(id);
      }
    }
  }
}

void DeviceWorker::Enqueue(DeviceBucket bucket) {
  if (leaving_.contains(bucket.communicator)) {
    GiveUp(bucket, absl::InvalidArgumentError("the communicator has been left"));
    return;
  }
  queue_.push_back(std::move(bucket));
  pause_ = microseconds(0);
}

void DeviceWorker::EmitEnded(std::vector<DeviceBucketEnded>* ended) {
  if (!ended->empty()) pause_ = microseconds(0);
  for (DeviceBucketEnded& one : *ended) emit_(std::move(one));
  ended->clear();
}

// Its results will never come: who waits for them is let go.
void DeviceWorker::GiveUp(const DeviceBucket& bucket, const absl::Status& status) {
  for (const TimelinePoint& point : bucket.done) {
    const DeviceSlab* const slab = slabs_.FindAny(point.slab);
    if (slab != nullptr) (void)slab->timeline().Release(std::span(&point.slot, 1));
  }
  emit_(DeviceBucketEnded{bucket.id, bucket.communicator, status, {}});
}

std::vector<DeviceBucket> DeviceWorker::TakeQueued(DeviceCommunicatorId id) {
  std::vector<DeviceBucket> taken;
  std::deque<DeviceBucket> others;
  for (DeviceBucket& bucket : queue_) {
    if (bucket.communicator == id) {
      taken.push_back(std::move(bucket));
    } else {
      others.push_back(std::move(bucket));
    }
  }
  queue_ = std::move(others);
  return taken;
}

bool DeviceWorker::MustWait(const DeviceCommunicator& next) const {
  const bool takes_turns = options_.takes_turns || !OrdersLaunches(*gpu_.nccl);
  return std::any_of(communicators_.begin(), communicators_.end(), [&](const auto& one) {
    const DeviceCommunicator& other = *one.second;
    return other.is_launching() || (&other != &next && takes_turns && other.has_work());
  });
}

void DeviceWorker::LaunchQueued(Clock::time_point now) {
  while (!queue_.empty()) {
    DeviceBucket& bucket = queue_.front();
    DeviceCommunicator* const communicator = Find(bucket.communicator);
    absl::Status status = unusable_;
    if (communicator == nullptr && status.ok()) {
      status = absl::InvalidArgumentError(absl::StrCat("communicator ", bucket.communicator.value(),
                                                       " is not there, or no longer"));
    }
    if (communicator != nullptr && communicator->phase() == DeviceCommunicator::Phase::kFailed) {
      status = communicator->failure();
    }
    if (!status.ok()) {
      GiveUp(bucket, status);
      queue_.pop_front();
      continue;
    }
    if (communicator->phase() == DeviceCommunicator::Phase::kConnecting ||
        MustWait(*communicator)) {
      return;
    }
    switch (communicator->Offer(&bucket, now, &status)) {
      case DeviceCommunicator::Verdict::kTaken:
        queue_.pop_front();
        break;
      case DeviceCommunicator::Verdict::kLater:
        if (now >= bucket.deadline) {
          Fail(communicator,
               absl::DeadlineExceededError("a bucket has waited too long for those before it"));
          break;
        }
        return;
      case DeviceCommunicator::Verdict::kRefused:
        communicator->SignalRefused(bucket);
        emit_(DeviceBucketEnded{bucket.id, bucket.communicator, status, {}});
        queue_.pop_front();
        break;
      case DeviceCommunicator::Verdict::kFailed:
        queue_.pop_front();
        Fail(communicator, status);
        break;
    }
  }
}

bool DeviceWorker::HasWork() const {
  return std::any_of(communicators_.begin(), communicators_.end(),
                     [](const auto& one) { return one.second->has_work(); });
}

std::chrono::microseconds DeviceWorker::Progress(Clock::time_point now) {
  const DeviceStep step(steps_, "looking after its communicators");
  std::vector<DeviceBucketEnded> ended;
  bool is_connecting = false;
  bool is_launching = false;
  absl::Status lost;
  for (const auto& [id, communicator] : communicators_) {
    const auto before = communicator->phase();
    const absl::Status status = communicator->Advance(now, &ended);
    EmitEnded(&ended);
    if (const auto awaits = communicator->TakeAwaits()) emit_(*awaits);
    if (lost.ok()) lost = communicator->device_error();
    if (!status.ok()) {
      Fail(communicator.get(), status);
    } else if (before != communicator->phase()) {
      emit_(DeviceCommunicatorConnected{id, absl::OkStatus()});
    }
    if (communicator->TakeAgreed()) {
      NcclDescription found = communicator->nccl()->Describe();
      emit_(DeviceMemoryRegistered{id, found.registered_bytes, std::move(found.not_registered)});
    }
    is_connecting |= communicator->phase() == DeviceCommunicator::Phase::kConnecting;
  }
  LaunchQueued(now);
  LetGo(now);
  while (auto created = slabs_.AdvanceWaiting(now)) Answer(*std::move(created));
  for (const auto& [id, communicator] : communicators_) {
    is_launching |= communicator->is_launching();
    if (lost.ok()) lost = communicator->device_error();
  }
  if (!lost.ok()) LoseDevice(lost);
  const bool is_draining = SweepFailed(now);
  SweepSlabs();
  if (is_launching) return kWhileLaunching;
  if (HasWork() || !queue_.empty()) {
    pause_ = std::clamp(2 * pause_, kWhileBusy, kWhileBusyAtMost);
    return pause_;
  }
  if (is_connecting || is_draining || !leaving_.empty()) return kWhileWaiting;
  return slabs_.has_waiting() ? DeviceSlabs::kMemoryPause : kWhileIdle;
}

}  // namespace ringd
