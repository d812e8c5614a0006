// A context's communicators besides that of all ranks.
#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/core/context.h"
#include "proto/base/text.h"
#include "proto/operations/operation_traits.h"
#include "proto/types/ids.h"

namespace ringd::client {
namespace {

// ringd ends the wait for the other ranks itself; these only bound what a stopped ringd can cost.
constexpr std::chrono::seconds kCreateMargin{10};
constexpr std::chrono::hours kLongestCreate{1};
constexpr std::chrono::seconds kDestroyDeadline{30};
constexpr std::chrono::seconds kMemoryDeadline{10};

absl::Status NoSuchCommunicator(ringd_communicator communicator) {
  return absl::NotFoundError(
      absl::StrCat("this rank has no communicator ", communicator, " (any more)"));
}

}  // namespace

LaneUse Context::LaneOfAllRanks() noexcept {
  LaneUse lane;
  lane.way = lane_of_all_ranks_.load(std::memory_order_acquire);
  lane.communicator = joined_.communicator;
  return lane;
}

absl::Status Context::CheckAsked(const AskedCommunicator& asked) const {
  const auto wrong = [&asked](const auto&... words) {
    return absl::InvalidArgumentError(
        absl::StrCat("communicator '", asked.name.substr(0, 64), "': ", words...));
  };
  if (asked.name.empty() || asked.name.size() > kMaxCommunicatorNameBytes) {
    return wrong("its name has ", asked.name.size(), " bytes; 1 to ", kMaxCommunicatorNameBytes,
                 " are possible");
  }
  if (!IsUtf8(asked.name)) {
    return absl::InvalidArgumentError("a communicator's name is not valid UTF-8");
  }
  std::set<std::int32_t> distinct;
  for (const std::int32_t rank : asked.ranks) {
    if (rank < 0 || rank >= places_.size) {
      return wrong("rank ", rank, " is none of the job's ", places_.size);
    }
    if (!distinct.insert(rank).second) return wrong("rank ", rank, " stands there twice");
  }
  if (!distinct.contains(places_.rank)) {
    return wrong("rank ", places_.rank, ", which creates it, is not one of its ranks");
  }
  return absl::OkStatus();
}

absl::StatusOr<ringd_communicator> Context::CreateCommunicator(
    const ringd_communicator_options& options) {
  if (options.name == nullptr || (options.ranks == nullptr && options.count != 0)) {
    return absl::InvalidArgumentError("a communicator's name or ranks are NULL");
  }
  AskedCommunicator asked;
  asked.name.assign(options.name, ::strnlen(options.name, kMaxCommunicatorNameBytes + 1));
  asked.ranks.assign(options.ranks, options.ranks + options.count);
  asked.timeout_ms = options.timeout_ms;
  if (options.matching != RINGD_BY_NAME && options.matching != RINGD_BY_ORDER) {
    return absl::InvalidArgumentError(
        absl::StrCat("communicator '", asked.name, "': matching is ", options.matching,
                     ", which is none of RINGD_BY_NAME and RINGD_BY_ORDER"));
  }
  asked.by_order = options.matching == RINGD_BY_ORDER;
  if (absl::Status status = CheckAsked(asked); !status.ok()) return status;
  if (!state_.alive()) return state_.status();
  const Presence presence(calls_);
  {
    const MutexLock lock(communicators_mutex_);
    asked.again = missed_communicators_.contains(asked.name) &&
                  std::none_of(communicators_.begin(), communicators_.end(),
                               [&](const auto& known) { return known.second.name == asked.name; });
  }
  const std::chrono::nanoseconds patience =
      asked.timeout_ms == 0 ? std::chrono::nanoseconds(kLongestCreate)
                            : std::chrono::milliseconds(asked.timeout_ms) + kLongestCreate;
  const absl::StatusOr<MadeCommunicator> made =
      control_->CreateCommunicator(asked, Clock::now() + patience + kCreateMargin, is_interrupted_);
  if (!made.ok()) {
    // Of an answer that was missed; any other says that there is none.
    if (absl::IsCancelled(made.status()) || absl::IsDeadlineExceeded(made.status()) ||
        absl::IsUnavailable(made.status())) {
      const MutexLock lock(communicators_mutex_);
      missed_communicators_.insert(asked.name);
    }
    return state_.alive() ? Explain(made.status()) : state_.status();
  }
  absl::StatusOr<LaneUse> lane = OpenLane(*made, asked.by_order);
  if (!lane.ok()) {
    ForgetCommunicator(*made);
    return state_.alive() ? lane.status() : state_.status();
  }
  Communicator added{std::move(asked.name), std::move(asked.ranks), {}, *lane, nullptr};
  added.lane.communicator = made->id;
  if (asked.by_order) {
    added.ordered =
        std::make_unique<OrderedDescriptions>(added.name, added.ranks, places_.rank, added.lane);
  }
  added.place.struct_size = sizeof(added.place);
  const auto self = std::find(added.ranks.begin(), added.ranks.end(), places_.rank);
  added.place.rank = static_cast<std::int32_t>(self - added.ranks.begin());
  added.place.size = static_cast<std::int32_t>(added.ranks.size());
  added.place.node_count = made->node_count;
  added.place.node_index = made->node_index;
  MutexLock lock(communicators_mutex_);
  missed_communicators_.erase(added.name);
  communicators_[made->number] = std::move(added);
  return made->number;
}

void Context::ForgetCommunicator(const MadeCommunicator& made) {
  // Best effort: the caller hears why it has none.
  if (state_.alive()) {
    static_cast<void>(control_->DestroyCommunicator(made.id, Clock::now() + kDestroyDeadline));
  }
  node_lanes_.Close(made.number);
}

absl::StatusOr<LaneUse> Context::OpenLane(const MadeCommunicator& made, bool by_order) {
  if (!made.combines_locally) {
    // Through the session's rings; or, of a rank alone, its own memory.
    LaneUse lane = LaneOfAllRanks();
    if (!alone_) lane.way = &wire_lane_;
    return lane;
  }
  const TracePlace trace{&trace_, TracedPart(made.number), by_order};
  return node_lanes_.Open(
      made.number, Clock::now() + kMemoryDeadline, [this, trace](const JobMemory& memory) {
        const std::uint32_t capacity = std::min(NodeLanes::kCapacity, submission_capacity_);
        return std::make_unique<LocalOperations>(memory, capacity, state_, spin_budget_,
                                                 direct_reading_, nullptr, trace);
      });
}

absl::Status Context::DestroyCommunicator(ringd_communicator communicator) {
  if (communicator == RINGD_ALL_RANKS) {
    return absl::FailedPreconditionError(
        "the communicator of all ranks is there as long as the job");
  }
  LaneUse lane;
  {
    MutexLock lock(communicators_mutex_);
    const auto found = communicators_.find(communicator);
    if (found == communicators_.end()) return NoSuchCommunicator(communicator);
    lane = found->second.lane;
    // Of a job that has failed, what was waited for has ended with that.
    if (state_.alive() && found->second.ordered != nullptr && found->second.ordered->AnyTaken()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "an operation of communicator '", found->second.name, "' has not been waited for"));
    }
  }
  const std::vector<ringd_registration> registrations = registrations_.OfCommunicator(communicator);
  if (absl::Status status = Unregister(registrations); !status.ok()) return status;
  if (!state_.alive()) return state_.status();
  const Presence presence(calls_);
  const absl::Status status =
      control_->DestroyCommunicator(lane.communicator, Clock::now() + kDestroyDeadline);
  // Not found: it has been destroyed, and the answer was missed.
  if (!status.ok() && !absl::IsNotFound(status)) return Explain(status);
  {
    MutexLock lock(communicators_mutex_);
    communicators_.erase(communicator);
  }
  node_lanes_.Close(communicator);
  return absl::OkStatus();
}

absl::StatusOr<ringd_communicator_place> Context::PlaceIn(ringd_communicator communicator) const {
  if (communicator == RINGD_ALL_RANKS) {
    ringd_communicator_place place{};
    place.rank = places_.rank;
    place.size = places_.size;
    place.node_count = joined_.node_count;
    place.node_index = joined_.node_index;
    return place;
  }
  MutexLock lock(communicators_mutex_);
  const auto found = communicators_.find(communicator);
  if (found == communicators_.end()) return NoSuchCommunicator(communicator);
  return found->second.place;
}

absl::StatusOr<LaneUse> Context::LaneFor(TensorDescription& tensor) {
  absl::StatusOr<LaneUse> lane = CommunicatorLaneFor(tensor);
  if (!lane.ok() || tensor.place == TensorPlace::kHost) return lane;
  const absl::StatusOr<bool> by_host = GoesByHost(tensor, lane->communicator);
  if (!by_host.ok()) return InTensor(tensor.name, by_host.status());
  if (*by_host) {
    const absl::StatusOr<HostPath*> path = OpenHostPath();
    if (!path.ok()) return InTensor(tensor.name, path.status());
    tensor.place = TensorPlace::kDeviceByHost;
    lane->tag = ringd_operation{NodeLanes::kHostPathTag} << NodeLanes::kTagShift;
    return lane;
  }
  lane->way = &wire_lane_;
  lane->tag = ringd_operation{NodeLanes::kRingdsTag} << NodeLanes::kTagShift;
  return lane;
}

absl::StatusOr<LaneUse> Context::CommunicatorLaneFor(const TensorDescription& tensor) {
  if (tensor.communicator == RINGD_ALL_RANKS) return LaneOfAllRanks();
  MutexLock lock(communicators_mutex_);
  const auto found = communicators_.find(tensor.communicator);
  if (found == communicators_.end()) {
    return absl::NotFoundError(absl::StrCat(
        "tensor '", tensor.name, "': ", NoSuchCommunicator(tensor.communicator).message()));
  }
  if (found->second.ordered != nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("tensor '", tensor.name, "': operations of communicator '", found->second.name,
                     "' are matched by order: submit them by ringd_submit_in_order"));
  }
  const std::vector<std::int32_t>& ranks = found->second.ranks;
  if (TraitsOf(tensor.kind).rooted &&
      std::find(ranks.begin(), ranks.end(), tensor.root_rank) == ranks.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", tensor.name, "': root_rank is ", tensor.root_rank,
                     ", which is no rank of communicator '", found->second.name, "'"));
  }
  return found->second.lane;
}

}  // namespace ringd::client
