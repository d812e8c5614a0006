#include "daemon/jobs/communicator/job_communicator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/lanes/node/node_lane.h"
#include "daemon/lanes/wire/wire_lane.h"
#include "daemon/peers/measurement_conversion.h"
#include "daemon/peers/schedule_conversion.h"
#include "daemon/schedule/node/node_scheduler.h"
#include "daemon/schedule/node/ordered_scheduler.h"
#include "proto/operations/operation_traits.h"

namespace ringd {
namespace {

// Rates need no more; looking at what ranks count takes cache lines from them.
constexpr auto kSampleInterval = std::chrono::milliseconds(250);

RanksByNode RanksOf(const Membership& membership) {
  RanksByNode ranks;
  for (const MemberNode& node : membership.nodes) {
    std::vector<Rank>& on_node = ranks.emplace_back();
    for (const MemberRank& rank : node.ranks) on_node.push_back(rank.rank);
  }
  return ranks;
}

std::unique_ptr<OperationScheduler> MakeScheduler(const JobCommunicator::Options& options,
                                                  std::string of_communicator) {
  if (options.by_order) return std::make_unique<OrderedScheduler>(options.scheduler.first_rank);
  NodeSchedulerConfig config = options.scheduler;
  config.of_communicator = std::move(of_communicator);
  return std::make_unique<NodeScheduler>(std::move(config));
}

}  // namespace

JobCommunicator::JobCommunicator(Options options, std::shared_ptr<const Membership> membership,
                                 std::vector<std::shared_ptr<Session>> members, Way way,
                                 CoordinatorLink* link)
    : options_(std::move(options)),
      membership_(std::move(membership)),
      ranks_(RanksOf(*membership_)),
      members_(std::move(members)),
      has_left_(members_.size()),
      stream_waits_(members_.size()),
      link_(link),
      scheduler_(MakeScheduler(options_, OfCommunicator())),
      lane_(MakeLane(std::move(way))) {
  if (CombinesLocally()) trace_.NumberTensorsFrom(kFirstTracedDeviceTensor);
  if (options_.by_order) {
    std::vector<std::int32_t> ranks;
    for (const std::vector<Rank>& on_node : ranks_) {
      for (const Rank rank : on_node) ranks.push_back(rank.value());
    }
    for (const auto& member : members_) member->ordered().Open(options_.id, ranks);
  }
  // Where a rank copies in pieces, their order is that of the job's ring, for all its
  // communicators.
  if (options_.number != 0) {
    if (options_.trace != nullptr) {
      trace_.NoteInto(*options_.trace, TracedPart(options_.number), options_.by_order,
                      options_.positions);
    } else {
      trace_.TurnOff();
    }
    return;
  }
  const RingPosition position{.self = static_cast<std::uint32_t>(membership_->self.value()),
                              .node_count = static_cast<std::uint32_t>(membership_->node_count())};
  for (const auto& member : members_) member->SetRingPosition(position);
}

JobCommunicator::~JobCommunicator() {
  // Of one that has failed late submissions may come: they end with the job's failure.
  if (options_.by_order && !failed()) {
    for (const auto& member : members_) member->ordered().Close(options_.id);
  }
  lane_.reset();  // It lets go of the members' memory.
}

std::unique_ptr<Lane> JobCommunicator::MakeLane(Way way) {
  LaneEvents& events = *this;
  if (auto* const group = std::get_if<std::unique_ptr<LocalGroup>>(&way)) {
    return std::make_unique<NodeLane>(std::move(*group), members_.size(), events);
  }
  const WireLane::Options options{
      .reducers = options_.reducers, .isolated = options_.isolated, .measures = !options_.by_order};
  return std::make_unique<WireLane>(options,
                                    std::get<std::unique_ptr<Communicator>>(std::move(way)),
                                    membership_, members_, *scheduler_, events);
}

absl::Status JobCommunicator::Number(Registration& registration, const std::string& meta_key) {
  if (options_.by_order) {
    return absl::FailedPreconditionError(
        absl::StrCat("tensor '", registration.name, "': operations of communicator '",
                     options_.name, "' are matched by order: they have no names"));
  }
  const std::size_t parts = TraitsOf(registration.meta.kind).HasParts()
                                ? static_cast<std::size_t>(membership_->size())
                                : 0;
  if (registration.meta.parts.size() != parts || !PartsFit(registration.meta)) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", registration.name, "' has no part for each of the ",
                     membership_->size(), " ranks, or they don't make up the whole"));
  }
  const absl::StatusOr<std::uint32_t> number = NumberName(registration);
  if (!number.ok()) return number.status();
  registration.tensor = *number;
  const absl::StatusOr<MetaNumbers::Held> held = metas_.Hold(meta_key, registration.meta);
  if (!held.ok()) {
    ReleaseName(registration);
    return held.status();
  }
  if (held->added) table_bytes_ += TableBytesOfMeta(registration);
  registration.meta_id = held->id;
  if (registration.meta.place == TensorPlace::kDevice) has_device_tensors_ = true;
  if (registration.meta.place == TensorPlace::kDeviceByHost) has_tensors_by_host_ = true;
  return absl::OkStatus();
}

absl::StatusOr<std::uint32_t> JobCommunicator::NumberName(const Registration& registration) {
  if (!IsCarriedHere(registration)) {
    const std::uint64_t before = TableBytesOfNames(lane_->tensor_count(), lane_->name_bytes(), 0);
    absl::StatusOr<std::uint32_t> number = lane_->HoldName(registration.name);
    // Less, too, where it takes the place of a longer one.
    table_bytes_ += TableBytesOfNames(lane_->tensor_count(), lane_->name_bytes(), 0) - before;
    return number;
  }
  const std::uint32_t number = scheduler_->Intern(registration.name).value();
  if (number >= numbered_.size()) numbered_.resize(number + 1);
  if (!numbered_[number]) {
    numbered_[number] = true;
    table_bytes_ += TableBytesOfNames(1, registration.name.size(), members_.size());
  }
  return number;
}

void JobCommunicator::ReleaseName(const Registration& registration) noexcept {
  if (!IsCarriedHere(registration)) lane_->ReleaseName(registration.tensor);
}

void JobCommunicator::Release(const Registration& registration) noexcept {
  ReleaseName(registration);
  if (metas_.Release(registration.meta_id)) table_bytes_ -= TableBytesOfMeta(registration);
}

std::optional<Clock::time_point> JobCommunicator::NextTick(Clock::time_point now) const {
  const std::optional<Clock::time_point> tick = scheduler_->NextTick();
  const std::optional<Clock::time_point> look = lane_->NextLook(now);
  if (!tick.has_value() || !look.has_value()) return tick.has_value() ? tick : look;
  return std::min(*tick, *look);
}

JobCommunicator::Tensor& JobCommunicator::TensorOf(TensorHandle handle) {
  if (handle.value() >= tensors_.size()) tensors_.resize(handle.value() + 1);
  Tensor& tensor = tensors_[handle.value()];
  if (tensor.queues.empty()) tensor.queues.resize(members_.size());
  return tensor;
}

void JobCommunicator::Submit(int member, const CheckedSubmission& submission,
                             Clock::time_point now) {
  if (has_left_[static_cast<std::size_t>(member)]) {
    members_[static_cast<std::size_t>(member)]->Complete(
        submission, absl::CancelledError("this rank left its job"));
    return;
  }
  if (failed()) {
    members_[static_cast<std::size_t>(member)]->Complete(submission, failure_);
    return;
  }
  if (!IsCarriedHere(*submission.registration)) {
    members_[static_cast<std::size_t>(member)]->Complete(
        submission, absl::FailedPreconditionError(
                        "the ranks of a one-node job combine their tensors themselves"));
    return;
  }
  const TensorHandle handle(submission.registration->tensor);
  Tensor& tensor = TensorOf(handle);
  auto& queue = tensor.queues[static_cast<std::size_t>(member)];
  const bool was_empty = queue.empty();
  queue.push(Queued{submission, now});
  trace_.OnSubmitted(member, submission, now);
  ++waiting_;
  if (was_empty) {
    ++tensor.members_ready;
    ReportIfReady(handle, now);
  }
}

void JobCommunicator::ReportIfReady(TensorHandle handle, Clock::time_point now) {
  Tensor& tensor = tensors_[handle.value()];
  if (tensor.outstanding || tensor.members_ready != static_cast<int>(members_.size())) return;
  tensor.outstanding = true;
  bool agree = true;
  bool follows_wait = false;
  bool follows_stream_wait = false;
  const Registration& first = *tensor.queues.front().front().submission.registration;
  for (std::size_t m = 0; m < members_.size(); ++m) {
    const CheckedSubmission& head = tensor.queues[m].front().submission;
    agree = agree && head.FitsTo(first);
    follows_wait = follows_wait || head.follows_wait;
    follows_stream_wait = follows_stream_wait || head.stream_waits > stream_waits_[m];
    stream_waits_[m] = std::max(stream_waits_[m], head.stream_waits);
  }
  trace_.OnReady(first, now);
  if (follows_stream_wait) scheduler_->OnStreamWait();
  if (agree) {
    scheduler_->OnLocallyReady(handle, first.meta, follows_wait || follows_stream_wait, now);
    return;
  }
  std::vector<RankMeta> reports;
  const auto& ranks = membership_->own().ranks;
  for (std::size_t m = 0; m < members_.size(); ++m) {
    const Registration& registration = *tensor.queues[m].front().submission.registration;
    reports.push_back(RankMeta{ranks[m].rank, registration.meta});
  }
  scheduler_->OnLocalMismatch(handle, std::move(reports), now);
}

absl::Status JobCommunicator::OnMessage(const CoordinatorMessage& message, Clock::time_point now) {
  if (failed()) return absl::OkStatus();
  absl::Status status = scheduler_->OnMessage(message, now);
  const bool starts =
      std::holds_alternative<Execute>(message) || std::holds_alternative<Launch>(message);
  if (!status.ok() || !has_device_tensors_ || !starts) return status;
  // GPUs get the operations of all communicators in one order on all nodes: that in which the
  // coordinator has sent them.
  while (start_failure_.ok()) {
    const absl::StatusOr<bool> taken = TakeActions(now);
    if (!taken.ok()) start_failure_ = taken.status();
    if (!taken.ok() || !*taken) break;
  }
  return absl::OkStatus();
}

absl::Status JobCommunicator::OnOrderInquiry(const std::string& name) {
  return failed() ? absl::OkStatus() : scheduler_->OnInquiry(name);
}

absl::StatusOr<std::size_t> JobCommunicator::Advance(Clock::time_point now) {
  std::size_t work = 0;
  if (!failed()) {
    if (!start_failure_.ok()) return start_failure_;
    if (!failed_tensors_.empty()) EndFailedTensors(now);
    if (const auto tick = scheduler_->NextTick(); tick.has_value() && *tick <= now) {
      scheduler_->OnTick(now, *this);
    }
    for (;; ++work) {
      const absl::StatusOr<bool> taken = TakeActions(now);
      if (!taken.ok()) return taken.status();
      if (!*taken) break;
    }
  }
  absl::StatusOr<std::size_t> carried = AdvanceLane(now);
  if (!carried.ok()) return carried.status();
  work += *carried;
  ReportMeasurements(now);
  if (device_lane_ != nullptr) {
    absl::StatusOr<std::size_t> advanced = AdvanceDevice(now);
    if (!advanced.ok()) return advanced.status();
    work += *advanced;
  }
  if (absl::Status places = CheckPlaces(now); !places.ok()) return places;
  if (now < next_sample_) return work;
  next_sample_ = now + kSampleInterval;
  const JobCommunicatorCounters counted = counters();
  bytes_rate_.Sample(counted.payload_bytes, now);
  operations_rate_.Sample(counted.operations, now);
  busy_rate_.Sample(counted.busy_ns, now);
  return work;
}

absl::StatusOr<std::size_t> JobCommunicator::AdvanceLane(Clock::time_point now) {
  absl::StatusOr<std::size_t> advanced = lane_->Advance(now);
  if (failed() && waiting_ > 0) CompleteFailed();
  CountBusy(now);
  if (failed()) return advanced;
  // Where a node is lost, that is why operations fail.
  if (absl::Status health = DescribeHealth(); !health.ok()) return health;
  return advanced;
}

bool JobCommunicator::CopyPiece() { return lane_->CopyPiece(); }

void JobCommunicator::ReportMeasurements(Clock::time_point now) {
  if (failed()) return;
  auto links = lane_->TakeMeasurements(/*idle=*/waiting_ == 0, scheduler_->epoch(), now);
  if (!links.has_value()) return;
  const NodeMeasurements measurements{*std::move(links), scheduler_->TakeReadiness()};
  if (!measurements.empty()) Send(ToProto(measurements));
}

void JobCommunicator::Send(v1::NodeMessage message) {
  message.set_communicator(options_.number);
  link_->Send(std::move(message));
}

absl::StatusOr<bool> JobCommunicator::TakeActions(Clock::time_point now) {
  actions_.clear();
  scheduler_->TakeActions(actions_);
  for (const Action& action : actions_) {
    if (const auto* send = std::get_if<SendToCoordinator>(&action)) {
      v1::NodeMessage message = ToProto(send->message);
      Send(std::move(message));
    } else if (const auto* start = std::get_if<StartOperation>(&action)) {
      if (absl::Status status = Start(*start, now); !status.ok()) return status;
    } else if (const auto* cancel = std::get_if<CancelOperation>(&action)) {
      lane_->Cancel(cancel->operation, now);
    } else if (const auto* failure = std::get_if<TensorFailed>(&action)) {
      failed_tensors_.push_back(*failure);
      EndFailedTensors(now);
    } else if (const auto* retired = std::get_if<ChannelRetired>(&action)) {
      layouts_.erase(retired->channel);
      lane_->Retire(retired->channel);
    }
  }
  return !actions_.empty();
}

std::shared_ptr<const BucketLayout> JobCommunicator::LayoutOf(const StartOperation& start) {
  // A negotiated operation's list differs each time, a learned bucket's stays.
  std::vector<const TensorMeta*> metas;
  metas.reserve(start.tensors->size());
  const bool learned = scheduler_->IsLearned(start.operation);
  if (learned) {
    const auto cached = layouts_.find(start.operation.channel);
    if (cached != layouts_.end() && cached->second.tensors == start.tensors) {
      return cached->second.layout;
    }
  }
  for (const TensorHandle handle : *start.tensors) {
    const auto& head = tensors_[handle.value()].queues.front().front();
    metas.push_back(&head.submission.registration->meta);
  }
  auto layout = std::make_shared<const BucketLayout>(metas, ranks_);
  if (learned) layouts_[start.operation.channel] = CachedLayout{start.tensors, layout};
  return layout;
}

absl::Status JobCommunicator::Start(const StartOperation& start, Clock::time_point now) {
  if (start.tensors->empty()) return absl::InternalError("an operation without tensors");
  if (absl::Status status = CheckNobodyLeft(start); !status.ok()) return status;
  if (start.operation.sequence == UINT32_MAX) {
    // Numbers of a channel only grow; the backend takes a smaller one for a late message.
    return absl::ResourceExhaustedError("2^32 operations were run: start the job anew");
  }
  std::shared_ptr<const BucketLayout> layout = LayoutOf(start);
  trace_.OnStarted(start.operation, layout->kind(), layout->payload_bytes(), now);
  if (HeadOf(start.tensors->front()).meta.place == TensorPlace::kDevice) {
    StartOnDevice(start, *layout, now);
    return absl::OkStatus();
  }
  std::vector<TensorBuffers> memory;
  memory.reserve(start.tensors->size() * members_.size());
  std::vector<StagedBuffer> staged;
  for (const TensorHandle handle : *start.tensors) {
    const Tensor& tensor = tensors_[handle.value()];
    trace_.OnCarries(start.operation, HeadOf(handle), now);
    for (const auto& queue : tensor.queues) {
      const CheckedSubmission& head = queue.front().submission;
      if (head.progress != nullptr) {
        staged.push_back({.tensor = memory.size() / members_.size(),
                          .member = memory.size() % members_.size(),
                          .progress = head.progress,
                          .waiters = head.waiters,
                          .source = head.source_in_pieces,
                          .result = head.result_in_pieces});
      }
      memory.push_back(TensorBuffers{head.source, head.destination});
    }
  }
  const TensorMeta& meta = HeadOf(start.tensors->front()).meta;
  int root_member = -1;
  const auto& ranks = membership_->own().ranks;
  for (std::size_t m = 0; m < ranks.size(); ++m) {
    if (ranks[m].rank == meta.root_rank) root_member = static_cast<int>(m);
  }
  const int member_count = static_cast<int>(members_.size());
  auto execution = std::make_unique<Execution>(
      start.operation, start.tensors, layout,
      BucketMemory(*layout, member_count, std::move(memory), root_member), staged, now);
  if (!Busy()) busy_since_ = now;
  return lane_->Start(std::move(execution), membership_->NodeOf(meta.root_rank),
                      scheduler_->DigestOf(meta));
}

void JobCommunicator::CountBusy(Clock::time_point now) noexcept {
  if (busy_since_ == Clock::time_point() || now < busy_since_) return;
  counters_.busy_ns += static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now - busy_since_).count());
  busy_since_ = Busy() ? now : Clock::time_point();
}

}  // namespace ringd
