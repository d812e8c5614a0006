#include "client/core/context.h"

#include <unistd.h>

#include <algorithm>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/core/attach/lone_rank.h"
#include "client/core/caller_structure.h"

namespace ringd::client {
namespace {

constexpr std::chrono::seconds kAttachDeadline{10};
constexpr std::chrono::seconds kRegisterDeadline{30};
constexpr std::chrono::seconds kMemoryDeadline{10};
// ringd ends the start itself; these only bound what a stopped ringd can cost.
constexpr std::chrono::seconds kStartMargin{10};
constexpr std::chrono::hours kLongestStart{168};  // the most that ringd's start_timeout may be

std::string HostName() {
  char name[256] = "this node";
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

Clock::time_point StartDeadline(std::uint32_t start_timeout_ms) {
  if (start_timeout_ms == 0) return Clock::now() + kLongestStart;
  return Clock::now() + std::chrono::milliseconds(start_timeout_ms) + kStartMargin;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Context>> Context::Open(const Options& options) {
  if (ForkGuard::ForkedWithContext()) {
    return absl::FailedPreconditionError(
        "this process was forked from one that had a context open, and gRPC does not survive that: "
        "start it by spawning (exec), or fork before the parent opens its context");
  }
  bool nobody_there = false;
  absl::StatusOr<Attachment> attachment = AttachToRingd(
      options.socket, options.no_ringd_advice, Clock::now() + kAttachDeadline, &nobody_there);
  if (!attachment.ok() && options.may_be_alone) {
    // One that drains, hangs, or does not admit this user is nobody's need here.
    if (!nobody_there) {
      options.on_warning(
          absl::StrCat(attachment.status().message(), ". This one rank goes on alone, without it"));
    }
    return OpenAlone(options);
  }
  if (!attachment.ok()) return attachment.status();
  if (!options.start_warning.empty()) options.on_warning(options.start_warning);
  std::unique_ptr<ControlChannel> control =
      ControlChannel::Create(std::move(attachment->grpc), attachment->token);
  std::unique_ptr<Context> context(
      new Context(options, *std::move(attachment), std::move(control)));
  if (absl::Status status = context->StartLifeline(options); !status.ok()) return status;
  if (absl::Status status = context->Join(options); !status.ok()) return status;
  return context;
}

absl::StatusOr<std::unique_ptr<Context>> Context::OpenAlone(const Options& options) {
  absl::StatusOr<LoneRank> lone = MakeLoneRank();
  if (!lone.ok()) return lone.status();
  std::unique_ptr<Context> context(
      new Context(options, std::move(lone->attachment), std::move(lone->control)));
  context->alone_ = true;
  context->on_warning_ = options.on_warning;
  context->job_memory_.AddSegment(lone->notice, lone->job_segment);
  if (absl::Status status = context->Join(options); !status.ok()) return status;
  return context;
}

Context::Context(const Options& options, Attachment attachment,
                 std::unique_ptr<ControlChannel> control)
    : places_(options.join.places),
      ringd_pid_(attachment.ringd_pid),
      spin_budget_(SpinPolicy::BudgetFor(options.spin)),
      direct_reading_(options.direct_reading),
      submission_capacity_(attachment.layout.submission_capacity),
      node_name_(HostName()),
      segment_(std::move(attachment.segment)),
      trace_(ViewSessionSegment(segment_.data(), attachment.layout).trace_ring),
      arena_(std::move(attachment.arena)),
      staged_copies_(ViewSessionSegment(segment_.data(), attachment.layout)),
      staging_(arena_, &staged_copies_),
      job_memory_(arena_.AtOffset(0), arena_.size(), &arena_mappings_),
      node_lanes_(arena_.AtOffset(0), arena_.size(), &arena_mappings_, staging_, state_),
      ringd_operations_(ViewSessionSegment(segment_.data(), attachment.layout),
                        submission_capacity_, attachment.layout.completion_capacity,
                        std::move(attachment.engine_wakeup), state_, staged_copies_, spin_budget_),
      wire_lane_(ringd_operations_, staging_, state_),
      cuda_library_(options.cuda_library),
      nccl_library_(options.nccl_library),
      wants_host_path_(options.wants_host_path),
      is_interrupted_(options.is_interrupted),
      fork_guard_(attachment.lifeline.get()),
      control_(std::move(control)),
      lifeline_(std::move(attachment.lifeline)) {}

absl::Status Context::StartLifeline(const Options& options) {
  on_warning_ = options.on_warning;
  Lifeline::Callbacks callbacks;
  callbacks.on_warning = options.on_warning;
  callbacks.on_failure = [this](const std::string& text) {
    state_.Fail(text);
    WakeAll();
  };
  callbacks.on_job_segment = [this](const JobSegmentNotice& notice, const UniqueFd& fd) {
    if (notice.communicator == 0) {
      job_memory_.AddSegment(notice, fd);
    } else {
      node_lanes_.AddSegment(notice, fd);
    }
  };
  callbacks.on_member_arena = [this](const MemberArenaNotice& notice, const UniqueFd& fd) {
    if (notice.communicator == 0) {
      job_memory_.AddArena(notice, fd);
    } else {
      node_lanes_.AddArena(notice, fd);
    }
  };
  callbacks.on_rank_exchange = [this](const RankExchangeNotice& notice, const UniqueFd& fd) {
    rank_exchange_memory_.AddSegment(notice, fd);
  };
  callbacks.on_rank_exchange_connection = [this](const RankExchangeConnectionNotice& notice,
                                                 UniqueFd fd) {
    rank_exchange_memory_.AddConnection(notice, std::move(fd));
  };
  callbacks.on_device_slab = [this](const DeviceSlabNotice& notice, UniqueFd fd) {
    slab_inbox_.Add(notice, std::move(fd));
  };
  callbacks.on_device_launch = [this](UniqueFd fd) { BeginLaunching(std::move(fd)); };
  callbacks.on_session_ended = [this](const std::string& text) {
    state_.Lose(
        absl::UnavailableError(absl::StrCat(RingdName(), " has ended this session: ", text)));
    WakeAll();
  };
  callbacks.on_look = [this](Clock::time_point now) { WatchRingd(now); };
  callbacks.on_hang_up = [this] {
    state_.Lose(absl::UnavailableError(absl::StrCat(
        RingdName(),
        " has gone: its connection was closed without a word, as happens when it is "
        "killed. Operations in flight are lost; start ringd again and open a new context")));
    WakeAll();
  };
  return lifeline_.Start(std::move(callbacks));
}

absl::Status Context::Join(const Options& options) {
  const Presence presence(calls_);
  absl::StatusOr<JoinedPlace> joined =
      control_->Join(options.join, StartDeadline(options.join.start_timeout_ms), is_interrupted_);
  if (!joined.ok()) return Explain(joined.status());
  joined_ = *std::move(joined);
  operation_timeout_ms_.store(joined_.operation_timeout_ms, std::memory_order_relaxed);
  engine_pid_.store(joined_.engine_pid, std::memory_order_relaxed);
  {
    MutexLock lock(node_name_mutex_);
    if (!joined_.node_name.empty()) {
      node_name_ = joined_.node_name;
    } else {
      joined_.node_name = node_name_;
    }
  }
  if (joined_.combines_locally) return UseLocalOperations(options);
  ringd_operations_.UseTrace(&trace_);
  return joined_.rank_exchange_connections > 0 ? UseRankExchange() : absl::OkStatus();
}

absl::Status Context::UseRankExchange() {
  absl::StatusOr<std::unique_ptr<RankExchange>> exchange = rank_exchange_memory_.MakeExchange(
      joined_.rank_exchange_connections, Clock::now() + kMemoryDeadline);
  if (!exchange.ok()) return state_.alive() ? exchange.status() : state_.status();
  rank_exchange_operations_ = std::make_unique<RankExchangeOperations>(
      *std::move(exchange), rank_exchange_memory_.member(), places_.size, state_, spin_budget_);
  rank_exchange_operations_->UseTrace(&trace_);
  registrations_.CountByName();
  unended_operations_ = std::make_unique<UnendedOperations>(
      *rank_exchange_operations_, state_,
      [this](const RankExchangeStay& stay,
             ringd_operation* operation) -> std::optional<absl::Status> {
        absl::Status status = SubmitGivenUp(stay, WhenFull::kFail, operation);
        if (Lane::IsForRoom(status)) return std::nullopt;
        return status;
      });
  watched_rank_exchange_.store(rank_exchange_operations_.get(), std::memory_order_release);
  return absl::OkStatus();
}

absl::Status Context::UseLocalOperations(const Options& options) {
  if (absl::Status status = job_memory_.Await(Clock::now() + kMemoryDeadline); !status.ok()) {
    return state_.alive() ? status : state_.status();
  }
  local_operations_ = std::make_unique<LocalOperations>(
      job_memory_, submission_capacity_, state_, spin_budget_, direct_reading_,
      options.background == BackgroundUse::kNever ? nullptr : &staging_, TracePlace{&trace_});
  node_lane_.emplace(*local_operations_, staging_, state_);
  watched_local_.store(local_operations_.get(), std::memory_order_release);
  lane_of_all_ranks_.store(&*node_lane_, std::memory_order_release);
  if (options.background == BackgroundUse::kNever) return absl::OkStatus();
  const ProcessorWatch::Read read = options.background == BackgroundUse::kWhereIdle
                                        ? ProcessorWatch::Read(ReadProcessorTimes)
                                        : [] { return std::nullopt; };
  background_helper_ = std::make_unique<BackgroundHelper>(
      *local_operations_, ProcessorWatch(job_memory_.segment().member_count(), read));
  return background_helper_->Start();
}

void Context::WakeAll() {
  WakeWaiters();
  job_memory_.GiveUp(state_.status());
  node_lanes_.GiveUpMemory(state_.status());
  rank_exchange_memory_.GiveUp(state_.status());
  slab_inbox_.GiveUp(state_.status());
  ReleaseStreams();
}

// Pings go through the rings also where the job's operations do not.
void Context::WakeWaiters() noexcept {
  ringd_operations_.WakeAll();
  if (HostPath* const path = host_path_now_.load(std::memory_order_acquire)) path->WakeAll();
  if (&operations() != &ringd_operations_) operations().WakeAll();
  node_lanes_.WakeAll();
}

absl::Status Context::Register(const ringd_tensor* tensors, std::size_t count,
                               ringd_registration* registrations) {
  std::vector<TensorDescription> unknown;
  std::vector<std::size_t> unknown_positions;
  std::vector<ringd_registration> numbers(count);
  // The caller's structures are as long as in the header that it was built with.
  const std::size_t stride = count == 0 ? sizeof(ringd_tensor) : tensors->struct_size;
  if (absl::Status status = CheckStructureBytes<ringd_tensor>(stride); !status.ok()) return status;
  for (std::size_t i = 0; i < count; ++i) {
    const auto tensor =
        FromCaller<ringd_tensor>(reinterpret_cast<const std::byte*>(tensors) + i * stride, stride);
    if (tensor.struct_size != stride) {
      return absl::InvalidArgumentError("all ringd_tensor.struct_size of one call must be equal");
    }
    absl::StatusOr<TensorDescription> description = DescribeTensor(tensor, places_.size);
    if (!description.ok()) return description.status();
    numbers[i] = registrations_.FindEqual(description->Key());
    if (numbers[i] == 0) {
      unknown.push_back(*std::move(description));
      unknown_positions.push_back(i);
    }
  }
  if (!unknown.empty()) {
    absl::Status status = RegisterUnknown(std::move(unknown), unknown_positions, numbers);
    if (!status.ok()) return status;
  }
  std::copy(numbers.begin(), numbers.end(), registrations);
  return absl::OkStatus();
}

absl::Status Context::RegisterUnknown(std::vector<TensorDescription> unknown,
                                      std::span<const std::size_t> positions,
                                      std::span<ringd_registration> numbers) {
  std::vector<LaneUse> lanes;
  for (TensorDescription& tensor : unknown) {
    const absl::StatusOr<LaneUse> lane = LaneFor(tensor);
    if (!lane.ok()) return lane.status();
    lanes.push_back(*lane);
  }
  if (!state_.alive()) return state_.status();
  const Presence presence(calls_);
  const Clock::time_point deadline = Clock::now() + kRegisterDeadline;
  // In one call as many as follow each other on one communicator, mostly all.
  for (std::size_t begin = 0; begin < unknown.size();) {
    std::size_t end = begin + 1;
    while (end < unknown.size() && lanes[end].communicator == lanes[begin].communicator) ++end;
    const absl::StatusOr<std::vector<RegisteredNumbers>> ringd_numbers = control_->Register(
        lanes[begin].communicator, std::span(unknown).subspan(begin, end - begin), deadline);
    if (!ringd_numbers.ok()) return Explain(ringd_numbers.status());
    for (std::size_t i = begin; i < end; ++i) {
      const std::uint32_t place = (*ringd_numbers)[i - begin].tensor;
      if (lanes[i].way != &wire_lane_ && place >= kMaxLocalTensors) {
        return absl::InternalError(absl::StrCat("ringd answered number ", place, " for tensor '",
                                                unknown[i].name, "', of at most ",
                                                kMaxLocalTensors));
      }
      const ringd_registration number = registrations_.Add(
          std::move(unknown[i]), (*ringd_numbers)[i - begin], places_.rank, lanes[i]);
      if (number == 0) return absl::ResourceExhaustedError("too many tensors are registered");
      numbers[positions[i]] = number;
    }
    begin = end;
  }
  return absl::OkStatus();
}

// Pings have no registration, so the queues have all that are not in the rank exchange.
const Registration* Context::FindUsed(
    const std::unordered_set<const Registration*>& registrations) {
  std::unordered_set<OperationQueue*> queues;
  for (const Registration* const registration : registrations) {
    queues.insert(&registration->lane.way->queue());
  }
  if (HostPath* const path = host_path_now_.load(std::memory_order_acquire)) queues.insert(path);
  for (OperationQueue* const queue : queues) {
    const Registration* const used = queue->FindUsed(registrations);
    if (used != nullptr) return used;
  }
  return unended_operations_ == nullptr ? nullptr : unended_operations_->FindUsed(registrations);
}

absl::Status Context::Unregister(std::span<const ringd_registration> registrations) {
  std::unordered_set<const Registration*> leaving;
  std::vector<std::uint32_t> ringd_numbers;
  for (const ringd_registration number : registrations) {
    const absl::StatusOr<Registration*> tensor = FindRegistration(number);
    if (!tensor.ok()) return tensor.status();
    if (!leaving.insert(*tensor).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("registration ", number, " stands there twice"));
    }
    ringd_numbers.push_back((*tensor)->numbers.registration);
  }
  if (leaving.empty()) return absl::OkStatus();
  if (const Registration* const used = FindUsed(leaving); used != nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("registration ", used->number.load(std::memory_order_relaxed), " (tensor '",
                     used->description.name, "') is in use: wait for its operations first"));
  }
  if (!state_.alive()) return state_.status();
  const Presence presence(calls_);
  // Whatever comes of it: ringd may have them no more.
  const absl::Status status = control_->Unregister(ringd_numbers, Clock::now() + kRegisterDeadline);
  for (const ringd_registration number : registrations) registrations_.Remove(number);
  // An older ringd keeps them, as it always has.
  if (absl::IsUnimplemented(status)) return absl::OkStatus();
  return status.ok() ? status : Explain(status);
}

}  // namespace ringd::client
