// JobCommunicator's dealings with GPUs: tensors in device memory.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/jobs/communicator/job_communicator.h"

namespace ringd {
namespace {

constexpr char kTypesWithoutNccl[] = "tensors of types that NCCL does not reduce";
// Who has made a mistake waits a moment for the word of it.
constexpr std::chrono::seconds kPlacesInterval{1};

}  // namespace

absl::Status JobCommunicator::CheckPlaces(Clock::time_point now) {
  if (!CombinesLocally() || waiting_ == 0 || failed() || now < places_checked_ + kPlacesInterval) {
    return absl::OkStatus();
  }
  places_checked_ = now;
  bool all = true;
  std::vector<WaitingSubmission> on_gpus;
  AddQueued(now - kPlacesInterval, SIZE_MAX, all, on_gpus);
  std::vector<WaitingSubmission> on_host;
  if (!on_gpus.empty()) lane_->AddWaiting(now - kPlacesInterval, SIZE_MAX, all, on_host);
  // A name may stand for a tensor on the host and one on a GPU: who waits with both disagrees with
  // nobody.
  const auto waits_with = [](const std::vector<WaitingSubmission>& waiting, int member,
                             const std::string& name) {
    return std::any_of(waiting.begin(), waiting.end(), [&](const WaitingSubmission& one) {
      return one.member == member && one.name == name;
    });
  };
  const auto& ranks = membership_->nodes.front().ranks;
  for (const WaitingSubmission& host : on_host) {
    for (const WaitingSubmission& gpu : on_gpus) {
      if (host.name != gpu.name || waits_with(on_gpus, host.member, host.name) ||
          waits_with(on_host, gpu.member, host.name)) {
        continue;
      }
      const auto member = static_cast<std::size_t>(host.member);
      const bool by_host_path = !members_[member]->host_path().uuid.empty();
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor '", host.name, "'", OfCommunicator(), " on ", membership_->nodes.front().name,
          ": rank ", ranks[member].rank.value(),
          by_host_path ? " takes the host path" : " has it in host memory", ", and rank ",
          ranks[static_cast<std::size_t>(gpu.member)].rank.value(), " on a GPU",
          by_host_path ? absl::StrCat(", for NCCL; ", kHostPathRemedy) : ""));
    }
  }
  return absl::OkStatus();
}

absl::Status JobCommunicator::TakeDeviceId(const v1::DeviceId& id) {
  NcclIdBytes bytes{};
  if (id.unique_id().size() != bytes.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("an id of ", id.unique_id().size(), " bytes for the GPUs' communicator"));
  }
  if (failed() || device_id_.has_value()) return absl::OkStatus();
  std::copy(id.unique_id().begin(), id.unique_id().end(), bytes.begin());
  device_id_ = {bytes, id.registers(), id.is_kept()};
  // The operation that needs it may still be about to be started here.
  if (device_lane_ != nullptr) device_lane_->TakeId(*device_id_);
  return absl::OkStatus();
}

DeviceLane& JobCommunicator::OpenDeviceLane() {
  if (device_lane_ != nullptr) return *device_lane_;
  const auto self = static_cast<std::size_t>(membership_->self.value());
  DeviceLane::Options options;
  for (const std::vector<Rank>& on_node : ranks_) {
    options.ranks.insert(options.ranks.end(), on_node.begin(), on_node.end());
  }
  options.makes_id = self == 0;
  options.connect_patience = options_.connect_patience;
  options.operation_timeout = options_.operation_timeout;
  options.is_kept_by_all = [this](const KeptCommunicator& kept) {
    return std::ranges::all_of(kept.ranks, [&](Rank rank) {
      return options_.has_kept(rank, absl::string_view(kept.id.data(), kept.id.size()),
                               kept.launched);
    });
  };
  options.tell_id = [this](const NcclIdBytes& id, bool is_kept) {
    v1::NodeMessage message;
    message.mutable_device_id()->set_unique_id(id.data(), id.size());
    message.mutable_device_id()->set_is_kept(is_kept);
    Send(std::move(message));
  };
  std::size_t rank = 0;
  for (std::size_t node = 0; node < self; ++node) rank += ranks_[node].size();
  std::vector<DeviceLane::Member> members;
  for (const std::shared_ptr<Session>& member : members_) {
    members.push_back({static_cast<int>(rank++), member->slab()});
  }
  device_lane_ =
      std::make_unique<DeviceLane>(std::move(options), std::move(members), options_.devices);
  if (device_id_.has_value()) device_lane_->TakeId(*device_id_);
  return *device_lane_;
}

void JobCommunicator::StartOnDevice(const StartOperation& start, const BucketLayout& layout,
                                    Clock::time_point now) {
  std::vector<const TensorMeta*> metas;
  std::vector<DeviceOperand> operands;
  metas.reserve(start.tensors->size());
  operands.reserve(start.tensors->size() * members_.size());
  for (const TensorHandle handle : *start.tensors) {
    const Registration& registration = HeadOf(handle);
    trace_.OnCarries(start.operation, registration, now);
    metas.push_back(&registration.meta);
    for (const auto& queue : tensors_[handle.value()].queues) {
      const CheckedSubmission& head = queue.front().submission;
      operands.push_back({head.slab_source, head.slab_destination, head.timeline_pair,
                          TimelineValueOf(head.sequence)});
    }
  }
  if (!Busy()) busy_since_ = now;
  device_running_.emplace(start.operation, DeviceRunning{start.tensors, layout.payload_bytes()});
  OpenDeviceLane().Start(start.operation, metas, operands, now);
}

absl::StatusOr<std::size_t> JobCommunicator::AdvanceDevice(Clock::time_point now) {
  std::size_t work = 0;
  for (DeviceLane::End& end : device_lane_->TakeEnds()) {
    const auto found = device_running_.find(end.id);
    if (found == device_running_.end()) continue;
    const DeviceRunning done = std::move(found->second);
    device_running_.erase(found);
    ++device_ended_;
    ++work;
    if (end.status.ok()) {
      ++counters_.operations;
      counters_.payload_bytes += done.payload_bytes;
      trace_.OnCompleted(end.id, done.payload_bytes, now);
    }
    scheduler_->OnFinished(end.id, now);
    for (const TensorHandle handle : *done.tensors) {
      if (end.status.ok()) {
        CompleteTensor(handle, end.status);
        continue;
      }
      NoteFailure(handle, end.status, now);
      CompleteTensor(handle,
                     absl::Status(end.status.code(),
                                  absl::StrCat("tensor '", scheduler_->NameOf(handle), "'",
                                               OfCommunicator(), ": ", end.status.message())));
    }
    for (const TensorHandle handle : *done.tensors) ReportIfReady(handle, now);
  }
  CountBusy(now);
  if (failed()) return work;
  if (absl::Status health = device_lane_->Health(now); !health.ok()) return health;
  return work;
}

JobCommunicator::RunningOnDevice::const_iterator JobCommunicator::FindOnDevice(
    const std::string& tensor) const {
  const std::optional<NamedOccurrence> named = scheduler_->Find(tensor);
  if (!named.has_value() || named->has_ended) return device_running_.end();
  return std::ranges::find_if(device_running_, [&named](const auto& entry) {
    return std::ranges::find(*entry.second.tensors, named->tensor) != entry.second.tensors->end();
  });
}

std::vector<int> JobCommunicator::MembersNotReady(const std::string& tensor) const {
  const auto running = FindOnDevice(tensor);
  if (running == device_running_.end()) return {};
  return device_lane_->MembersNotReady(running->first);
}

bool JobCommunicator::LaunchesItself(int member) const {
  const auto& slab = members_[static_cast<std::size_t>(member)]->slab();
  return slab != nullptr && slab->launched_by() == LaunchedBy::kTrainer;
}

void JobCommunicator::NoteHostPath(const std::string& why) {
  if (!why_by_host_.empty()) return;
  why_by_host_ = why;
  LogWarning(absl::StrCat("GPU tensors", OfCommunicator(),
                          " go through host memory, which is slow: ", why),
             Fields());
}

std::vector<DeviceLane::Description> JobCommunicator::DescribeDevices() const {
  std::vector<DeviceLane::Description> all;
  if (device_lane_ != nullptr) all = device_lane_->Describe();
  if (!has_tensors_by_host_) return all;
  const auto& ranks = membership_->own().ranks;
  for (std::size_t member = 0; member < members_.size(); ++member) {
    const Session& session = *members_[member];
    const bool has_slab = session.slab() != nullptr;
    if (!has_slab && session.host_path().uuid.empty()) continue;
    DeviceLane::Description& one = all.emplace_back();
    one.rank = ranks[member].rank;
    one.nccl_rank = -1;
    one.gpu = has_slab ? session.slab()->uuid() : session.host_path().uuid;
    one.is_under_mps = has_slab ? session.slab()->is_under_mps() : session.host_path().is_under_mps;
    one.launched_by = LaunchedBy::kHost;
    one.state = "ready";
    const std::string& why = has_slab ? why_by_host_ : session.host_path().why;
    one.failure = has_slab && why.empty() ? kTypesWithoutNccl : why;
  }
  return all;
}

}  // namespace ringd
