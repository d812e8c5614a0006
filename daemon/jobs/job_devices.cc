// A job's tensors in device memory: who may have some, how the GPUs find each other, and what
// ringctl shows of them.
#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/jobs/job.h"
#include "proto/base/text.h"
#include "proto/operations/operation_traits.h"

namespace ringd {

namespace {

const char* WordFor(LaunchedBy who) noexcept {
  switch (who) {
    case LaunchedBy::kEngine:
      return "engine";
    case LaunchedBy::kTrainer:
      return "trainer";
    case LaunchedBy::kHost:
      return "host";
  }
  return "";
}

}  // namespace

absl::Status Job::MayOpenDevice(const Session& session) const {
  if (absl::Status status = MayRegister(session); !status.ok()) return status;
  if (options_.devices == nullptr) {
    return absl::FailedPreconditionError("this ringd uses no GPU");
  }
  if (session.slab() != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat("this rank has ", session.slab()->bytes(),
                                                 " bytes of device memory on ",
                                                 session.slab()->uuid(), " already"));
  }
  if (!session.host_path().uuid.empty()) {
    return absl::AlreadyExistsError(
        absl::StrCat("this rank has opened ", session.host_path().uuid, " already"));
  }
  return absl::OkStatus();
}

std::string Job::NameOf(const Session& session) const {
  const Member& member = *Find(session);
  return absl::StrCat("rank ", member.rank.value(), " (pid ", member.pid, ")");
}

absl::Status Job::CheckOnDevice(const Session& session, const Registration& registration) {
  const auto wrong = [&registration](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", registration.name, "' is in device memory: ", what));
  };
  if (session.slab() == nullptr) return wrong("this rank has none (ringd_device_open)");
  const OperationTraits& traits = TraitsOf(registration.meta.kind);
  if (!traits.moves_data || traits.HasParts()) {
    return wrong(
        absl::StrCat("a ", Name(registration.meta.kind),
                     " is possible in host memory only, all-reduce and broadcast in both"));
  }
  return absl::OkStatus();
}

void Job::TellDevice(const Session& session, v1::RankDevice device) {
  const Member* const member = Find(session);
  if (member == nullptr || member->left || state_ != State::kRunning || link_ == nullptr) return;
  device.set_rank(member->rank.value());
  device.set_why(std::string(CutToLength(device.why(), kMostDeviceWhyBytes)));
  static_assert(KeptCommunicators::kMost <= kMostKept);
  if (session.slab() != nullptr) {
    for (const KeptCommunicator* const kept : options_.devices->kept().Announce(
             member->rank, options_.size, *session.slab()->gpu(), Clock::now())) {
      v1::KeptCommunicator& told = *device.add_kept();
      told.set_unique_id(kept->id.data(), kept->id.size());
      told.set_launched(kept->launched);
    }
  }
  v1::NodeMessage message;
  *message.mutable_rank_device() = std::move(device);
  link_->Send(std::move(message));
}

void Job::OnRankDevice(const v1::RankDevice& device) {
  if (state_ != State::kRunning || membership_->NodeOf(Rank(device.rank())).value() < 0) return;
  agreement_.OnWord(device);
}

void Job::AgreeOnDevices(const Session& session, CommunicatorId communicator, Clock::time_point now,
                         DeviceAgreement::Done done) {
  if (absl::Status status = MayRegister(session); !status.ok()) return done(status, {});
  const Member& member = *Find(session);
  const CommunicatorPart* const part = Find(communicator);
  if (part == nullptr || part->MemberAt(PositionOf(member)) < 0 ||
      part->HasDropped(member.rank.value())) {
    return done(absl::NotFoundError(absl::StrCat("this rank has no communicator ",
                                                 communicator.value(), " (any more)")),
                {});
  }
  DeviceAgreement::Ask ask;
  ask.rank = member.rank.value();
  ask.ranks = part->ranks;
  if (part->number == 0) {
    ask.ranks.resize(static_cast<std::size_t>(options_.size));
    std::iota(ask.ranks.begin(), ask.ranks.end(), 0);
  }
  ask.since = now;
  ask.until = now + std::min<std::chrono::nanoseconds>(options_.start_timeout, kLongestAgreement);
  ask.done = [this, communicator, done = std::move(done)](const absl::Status& status,
                                                          const AgreedDevices& agreed) {
    CommunicatorPart* const concerned = agreed.goes_by_host ? Find(communicator) : nullptr;
    if (concerned != nullptr && concerned->communicator != nullptr) {
      concerned->communicator->NoteHostPath(agreed.why);
    }
    done(status, agreed);
  };
  agreement_.Add(std::move(ask));
}

void Job::TellWhoseDevicesAreAwaited(Clock::time_point now) {
  const std::string silent =
      coordinator_watch_.SilentFor(now)
          ? absl::StrCat("ringd on ", DescribeNode(membership_->nodes.front()),
                         ", which does not answer, to say which ranks have opened a GPU")
          : "";
  agreement_.Tick(now, options_.stall_warning, silent, [this](int rank, const std::string& text) {
    LogInfo(text, Fields(Rank(rank)));
    for (const auto& [local_rank, member] : members_) {
      if (member.rank.value() != rank || member.session == nullptr) continue;
      member.session->Notify(NoticeKind::kWarning, text);
    }
  });
}

std::string Job::NameOf(Rank rank) const {
  const NodeIndex index = membership_->NodeOf(rank);
  if (index.value() < 0) return absl::StrCat("rank ", rank.value());
  const MemberNode& node = membership_->nodes[static_cast<std::size_t>(index.value())];
  const auto found = std::ranges::find(node.ranks, rank, &MemberRank::rank);
  return DescribeRank(rank, found->pid, node.name);
}

void Job::DescribeDevices(const JobCommunicator& communicator, v1::Communicator* out) {
  for (DeviceLane::Description& device : communicator.DescribeDevices()) {
    v1::CommunicatorDevice* const to = out->add_devices();
    to->set_rank(device.rank.value());
    *to->mutable_gpu() = std::move(device.gpu);
    if (device.is_under_mps.has_value()) to->set_mps(*device.is_under_mps ? "on" : "off");
    *to->mutable_nccl_version() = std::move(device.nccl_version);
    to->set_nccl_rank(device.nccl_rank);
    *to->mutable_state() = std::move(device.state);
    *to->mutable_error() = std::move(device.failure);
    to->set_slab_bytes(device.slab_bytes);
    to->set_fusion_bytes(device.fusion_bytes);
    if (device.registered_bytes.has_value()) to->set_registered_bytes(*device.registered_bytes);
    *to->mutable_why_not_registered() = std::move(device.why_not_registered);
    to->set_launched_by(WordFor(device.launched_by));
  }
}

void Job::OnDeviceId(CommunicatorPart& part, const v1::DeviceId& id) {
  absl::Status status = part.communicator == nullptr
                            ? absl::FailedPreconditionError("an id before the membership")
                            : part.communicator->TakeDeviceId(id);
  if (status.ok()) return;
  Propose(absl::InternalError(absl::StrCat("the coordinator at ", options_.rendezvous,
                                           " broke the protocol: ", status.message())));
}

}  // namespace ringd
