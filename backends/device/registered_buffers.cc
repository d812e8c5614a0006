#include "backends/device/registered_buffers.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "backends/cuda/device_copy.h"

namespace ringd {
namespace {

constexpr std::size_t kNumberBytes = sizeof(std::int32_t);

}  // namespace

absl::StatusOr<std::unique_ptr<RegisteredBuffers>> RegisteredBuffers::Create(const Parts& parts) {
  std::unique_ptr<RegisteredBuffers> made(new RegisteredBuffers(parts));
  if (parts.size == 1) return made;
  auto on_host = PinnedMemory::Allocate(parts.context, kNumberBytes);
  if (!on_host.ok()) return on_host.status();
  auto on_gpu = DeviceMemory::Allocate(parts.context, kNumberBytes);
  if (!on_gpu.ok()) return on_gpu.status();
  auto answered = CudaEvent::Create(parts.context);
  if (!answered.ok()) return answered.status();
  made->on_host_ = *std::move(on_host);
  made->on_gpu_ = *std::move(on_gpu);
  made->answered_.emplace(*std::move(answered));
  return made;
}

absl::Status RegisteredBuffers::AdvanceAgreeing(Clock::time_point now) {
  const NcclCommunicator::State state = nccl_->Poll();
  if (state == NcclCommunicator::State::kFailed) return nccl_->status();
  if (state == NcclCommunicator::State::kReady) {
    if (auto status = Agree(); !status.ok()) return status;
  }
  if (has_agreed()) {
    deadline_.reset();
    has_news_ = true;
    return absl::OkStatus();
  }
  if (now < *deadline_) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("the ", parts_.size, " ranks have not agreed in time whether their memory is ",
                   "registered with NCCL: this rank is in it, some other is not"));
}

absl::Status RegisteredBuffers::Agree() {
  switch (step_) {
    case Step::kTry:
      tried_ = RegisterAll();
      if (parts_.size == 1) return Conclude(tried_.ok());
      step_ = Step::kLaunching;
      return LaunchQuestion();
    case Step::kLaunching:
      step_ = Step::kWaiting;
      return LaunchAnswer();
    case Step::kWaiting: {
      const absl::StatusOr<bool> is_there = answered_->IsReached();
      if (!is_there.ok() || !*is_there) return is_there.status();
      return Conclude(*static_cast<const std::int32_t*>(on_host_.data()) == 1);
    }
    case Step::kAgreed:
      break;
  }
  return absl::OkStatus();
}

absl::Status RegisteredBuffers::RegisterAll() {
  if (parts_.fusion_bytes > 0) {
    const auto made = nccl_->Register(parts_.fusion, parts_.fusion_bytes);
    if (!made.ok()) return made.status();
    all_.push_back({std::nullopt, *made});
  }
  return parts_.slabs->Find(parts_.slab) == nullptr ? absl::OkStatus() : RegisterSlab(parts_.slab);
}

absl::Status RegisteredBuffers::RegisterSlab(DeviceSlabId id) {
  const DeviceSlab& slab = *parts_.slabs->Find(id);
  const auto made = nccl_->Register(slab.address(), slab.bytes());
  if (!made.ok()) return made.status();
  parts_.slabs->AddRegistration(id);
  all_.push_back({id, *made});
  return absl::OkStatus();
}

absl::Status RegisteredBuffers::LaunchQuestion() {
  *static_cast<std::int32_t*>(on_host_.data()) = tried_.ok() ? 1 : 0;
  if (auto status = EnqueueCopyFromHost(*parts_.context, on_gpu_.address(), on_host_.data(),
                                        kNumberBytes, parts_.stream->handle());
      !status.ok()) {
    return status;
  }
  return nccl_->AllReduce(on_gpu_.address(), on_gpu_.address(), 1, DataType::kInt32, ReduceOp::kMin,
                          parts_.stream->handle());
}

absl::Status RegisteredBuffers::LaunchAnswer() {
  if (auto status = EnqueueCopyToHost(*parts_.context, on_host_.data(), on_gpu_.address(),
                                      kNumberBytes, parts_.stream->handle());
      !status.ok()) {
    return status;
  }
  return answered_->Record(parts_.stream->handle());
}

absl::Status RegisteredBuffers::Conclude(bool all_can) {
  step_ = Step::kAgreed;
  is_on_ = all_can;
  if (all_can) return absl::OkStatus();
  nccl_->NoteNotRegistered(tried_.ok() ? "another rank can't register its memory"
                                       : std::string(tried_.message()));
  return DeregisterAll();
}

absl::Status RegisteredBuffers::Cover(std::span<const DeviceTensor> tensors) {
  if (!is_on_) return absl::OkStatus();
  for (const DeviceTensor& tensor : tensors) {
    const bool is_covered = std::any_of(
        all_.begin(), all_.end(), [&](const Registered& one) { return one.slab == tensor.slab; });
    if (is_covered || tensor.count == 0) continue;
    const absl::Status status = RegisterSlab(tensor.slab);
    if (status.ok()) continue;
    return absl::FailedPreconditionError(absl::StrCat("slab ", tensor.slab.value(),
                                                      " can't be registered with NCCL, as other ",
                                                      "ranks' memory is: ", status.message()));
  }
  return absl::OkStatus();
}

absl::Status RegisteredBuffers::Deregister(const Registered& one) {
  if (auto status = nccl_->Deregister(one.registration); !status.ok()) return status;
  if (one.slab) parts_.slabs->RemoveRegistration(*one.slab);
  return absl::OkStatus();
}

absl::Status RegisteredBuffers::DeregisterLeaving() {
  for (auto one = all_.begin(); one != all_.end();) {
    if (!one->slab || !parts_.slabs->IsLeaving(*one->slab)) {
      ++one;
      continue;
    }
    if (auto status = Deregister(*one); !status.ok()) return status;
    one = all_.erase(one);
  }
  return absl::OkStatus();
}

absl::Status RegisteredBuffers::DeregisterAll() {
  while (!all_.empty()) {
    if (auto status = Deregister(all_.back()); !status.ok()) return status;
    all_.pop_back();
  }
  return absl::OkStatus();
}

void RegisteredBuffers::Forget() {
  for (const Registered& one : all_) {
    if (one.slab) parts_.slabs->RemoveRegistration(*one.slab);
  }
  all_.clear();
}

}  // namespace ringd
