#include "daemon/lanes/device/device_lane.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/logging/log.h"
#include "proto/operations/operation_traits.h"
#include "proto/reduce/tensor_scaling.h"
#include "proto/types/data_type.h"

namespace ringd {
namespace {

constexpr char kNotAllRegister[] = "some rank's ringd or library is from before that";

// NCCL's averages of integers are rounded as nobody says, and those of floats are multiplied by 1 /
// ranks in the tensor's own type, which for float8 is up to 6 % off where the ranks are no power of
// two: they are summed and divided here, as on the host.
bool DividesItself(const TensorMeta& meta, std::size_t ranks) noexcept {
  if (meta.op != ReduceOp::kAverage) return false;
  return !IsFloatingPoint(meta.dtype) || (IsFloat8(meta.dtype) && !std::has_single_bit(ranks));
}

}  // namespace

DeviceBucket DeviceLane::MakeBucket(std::span<const TensorMeta* const> metas, int rank) const {
  const TensorMeta& first = *metas.front();
  DeviceBucket bucket;
  if (TraitsOf(first.kind).rooted) {
    const auto root = std::find(options_.ranks.begin(), options_.ranks.end(), first.root_rank);
    const auto position = static_cast<int>(root - options_.ranks.begin());
    bucket.broadcast = DeviceBroadcast{position, position == rank};
  }
  bucket.type = bucket.wire_type = first.dtype;
  const std::size_t ranks = options_.ranks.size();
  const bool divides = DividesItself(first, ranks);
  bucket.op = divides ? ReduceOp::kSum : first.op;
  for (const TensorMeta* const meta : metas) {
    DeviceTensor& tensor = bucket.tensors.emplace_back();
    tensor.count = ElementCount(*meta);
    // What NCCL divides is not part of it.
    const TensorScaling scaling =
        ScalingOf(meta->dtype, divides ? ReduceOp::kAverage : ReduceOp::kSum, meta->prescale,
                  meta->postscale, static_cast<int>(ranks), /*several_nodes=*/true);
    tensor.prescale = scaling.prescale;
    tensor.result = scaling.result;
  }
  return bucket;
}

DeviceLane::DeviceLane(Options options, std::vector<Member> members, DeviceRoom* room)
    : options_(std::move(options)), room_(room) {
  for (Member& member : members) {
    ranks_.push_back({std::move(member), room_->AddCommunicator(this), false});
  }
}

DeviceLane::~DeviceLane() {
  if (CanBeKept()) {
    Keep(/*in_order=*/true);
  } else if (connects_ && failure_.ok() && Quiet()) {
    // Other ranks may not be done with what has ended here.
    const Clock::time_point deadline = Clock::now() + kPartingPatience;
    for (const LocalRank& rank : ranks_) {
      rank.member.slab->gpu()->Disconnect(rank.communicator, deadline);
    }
  } else {
    Abort("the communicator has ended");
  }
  room_->Forget(this);
}

void DeviceLane::Start(OperationId id, std::span<const TensorMeta* const> metas,
                       std::span<const DeviceOperand> operands, Clock::time_point now) {
  begun_ = true;
  Running& running = running_[id];
  running.parts = static_cast<int>(ranks_.size());
  if (!failure_.ok()) return;  // Health says why it does not end.
  const auto patience = options_.operation_timeout.count() > 0
                            ? options_.operation_timeout
                            : std::chrono::nanoseconds(kLongestOperation);
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const SessionSlab& slab = *ranks_[r].member.slab;
    DeviceBucket bucket = MakeBucket(metas, ranks_[r].member.rank);
    bucket.id = next_bucket_++;
    bucket.communicator = ranks_[r].communicator;
    bucket.deadline = now + patience;
    for (std::size_t t = 0; t < metas.size(); ++t) {
      const DeviceOperand& operand = operands[t * ranks_.size() + r];
      bucket.tensors[t].slab = slab.id();
      bucket.tensors[t].source = operand.source;
      bucket.tensors[t].destination = operand.destination;
      bucket.ready.push_back({slab.id(), ReadySlot(operand.timeline_pair), operand.timeline_value});
      bucket.done.push_back({slab.id(), DoneSlot(operand.timeline_pair), operand.timeline_value});
    }
    buckets_.emplace(bucket.id, id);
    if (connects_) {
      slab.gpu()->Enqueue(std::move(bucket));
    } else {
      held_.emplace_back(r, std::move(bucket));
    }
  }
  if (!connects_) Connect(now);
}

bool DeviceLane::CanBeKept() const {
  return room_->options().keep.count() > 0 && connects_ && failure_.ok() && Quiet() &&
         std::ranges::all_of(ranks_, [](const LocalRank& rank) {
           // A trainer's communicator goes with its process.
           return rank.connected && rank.member.slab->launched_by() == LaunchedBy::kEngine;
         });
}

void DeviceLane::Keep(bool in_order) {
  KeptCommunicator kept{id_->unique_id, launched_, options_.ranks, {}};
  for (const LocalRank& rank : ranks_) {
    const SessionSlab& slab = *rank.member.slab;
    kept.here.push_back({rank.member.rank, slab.gpu(), rank.communicator});
  }
  room_->Keep(std::move(kept), in_order);
}

void DeviceLane::Connect(Clock::time_point now) {
  if (aborted_ || connects_) return;
  if (options_.makes_id && !std::exchange(id_asked_, true)) {
    const KeptCommunicator* const kept = room_->kept().Of(options_.ranks, now);
    if (kept != nullptr && options_.is_kept_by_all(*kept)) {
      // The job may have another communicator of the same ranks.
      room_->kept().Name(kept->id);
      options_.tell_id(kept->id, /*is_kept=*/true);
    } else {
      room_->DropKept(options_.ranks);  // as all nodes do when they hear the id
      ranks_.front().member.slab->gpu()->CreateId(room_->AddIdRequest(this));
    }
  }
  if (!begun_ || !id_.has_value()) return;
  connects_ = true;
  if (id_->is_kept) {
    TakeKept();
  } else {
    Meet(now);
  }
  if (!failure_.ok()) return;
  for (auto& [rank, bucket] : std::exchange(held_, {})) {
    bucket.communicator = ranks_[rank].communicator;
    ranks_[rank].member.slab->gpu()->Enqueue(std::move(bucket));
  }
}

void DeviceLane::Meet(Clock::time_point now) {
  room_->DropKept(options_.ranks);
  for (const LocalRank& rank : ranks_) {
    std::optional<DeviceSlabId> registered;
    if (id_->registers) registered = rank.member.slab->id();
    rank.member.slab->gpu()->Connect(rank.communicator, id_->unique_id, rank.member.rank,
                                     static_cast<int>(options_.ranks.size()),
                                     room_->options().fusion_bytes, registered,
                                     now + options_.connect_patience);
  }
}

void DeviceLane::TakeKept() {
  const KeptCommunicator kept = room_->TakeKept(id_->unique_id, this).value_or(KeptCommunicator{});
  for (LocalRank& rank : ranks_) {
    const auto found = std::ranges::find_if(kept.here, [&rank](const auto& here) {
      return here.rank == rank.member.rank && here.launcher == rank.member.slab->gpu();
    });
    if (found == kept.here.end()) {
      // It has failed since it was announced.
      const std::string why = absl::StrCat(
          "what rank ", options_.ranks[static_cast<std::size_t>(rank.member.rank)].value(),
          " had kept of an earlier job has gone; the next start makes another");
      for (const auto& here : kept.here) here.launcher->Abort(here.communicator, why);
      return NoteFailure(absl::UnavailableError(why));
    }
    rank.communicator = found->communicator;
    rank.connected = true;
  }
  launched_ = kept.launched;
  LogInfo(absl::StrCat("the GPUs' communicator of ", options_.ranks.size(),
                       " ranks is the one of an earlier job"));
}

void DeviceLane::OnId(const NcclIdCreated& created) {
  if (created.status.ok()) {
    options_.tell_id(created.id, /*is_kept=*/false);
  } else {
    NoteFailure(created.status);
  }
}

void DeviceLane::TakeId(const Id& id) {
  if (id_.has_value()) return;
  id_ = id;
  Connect(Clock::now());
}

void DeviceLane::OnConnected(const DeviceCommunicatorConnected& connected) {
  for (LocalRank& rank : ranks_) {
    if (rank.communicator == connected.communicator) rank.connected = connected.status.ok();
  }
  if (!connected.status.ok()) NoteFailure(connected.status, connected.is_lost_gpu);
}

void DeviceLane::OnFailed(const DeviceCommunicatorFailed& failed) {
  NoteFailure(failed.status, failed.is_lost_gpu);
}

void DeviceLane::NoteFailure(const absl::Status& why, bool is_certain) {
  if (!failure_.ok() && (!is_certain || is_certain_)) return;
  failure_ = why;
  is_certain_ = is_certain;
  failed_at_ = Clock::now();
}

void DeviceLane::OnBucketAwaits(const DeviceBucketAwaits& told) {
  const auto rank = std::ranges::find(ranks_, told.communicator, &LocalRank::communicator);
  if (rank == ranks_.end() || !told.awaits || !buckets_.contains(told.bucket)) {
    awaiting_.erase(told.bucket);
  } else {
    awaiting_[told.bucket] = static_cast<int>(rank - ranks_.begin());
  }
}

std::vector<int> DeviceLane::MembersNotReady(OperationId id) const {
  std::vector<int> members;
  for (const auto& [bucket, member] : awaiting_) {
    const auto found = buckets_.find(bucket);
    if (found != buckets_.end() && found->second == id) members.push_back(member);
  }
  std::ranges::sort(members);
  return members;
}

void DeviceLane::OnBucketEnded(const DeviceBucketEnded& ended) {
  awaiting_.erase(ended.bucket);
  const auto bucket = buckets_.find(ended.bucket);
  if (bucket == buckets_.end()) return;
  const OperationId id = bucket->second;
  buckets_.erase(bucket);
  const auto found = running_.find(id);
  if (found == running_.end()) return;
  absl::Status status = ended.status;
  // All ranks ask for the same, and have one version of NCCL, so all are refused. Not so what has
  // no room here: other nodes may have launched it, and would wait.
  if (absl::IsUnimplemented(status)) status = absl::InvalidArgumentError(status.message());
  // It ends with the communicator, which may not have come about.
  if (!failure_.ok()) return;
  if (!status.ok() && !absl::IsInvalidArgument(status)) return NoteFailure(status);
  Running& running = found->second;
  if (running.status.ok()) running.status = std::move(status);
  if (--running.parts > 0) return;
  if (running.status.ok()) ++launched_;
  ends_.push_back({id, std::move(running.status)});
  running_.erase(found);
}

std::vector<DeviceLane::End> DeviceLane::TakeEnds() { return std::exchange(ends_, {}); }

absl::Status DeviceLane::Health(Clock::time_point now) const {
  // Other nodes may have ended in order meanwhile, which looks like an error to NCCL.
  if (failure_.ok() || running_.empty()) return absl::OkStatus();
  // The lane itself has not aborted it: nothing would be running.
  const auto patience = absl::IsAborted(failure_) ? kWordOfEnd : kBetterWord;
  if (!is_certain_ && now - failed_at_ < patience) return absl::OkStatus();
  return absl::Status(failure_.code(),
                      absl::StrCat("the GPUs' communicator: ", failure_.message()));
}

void DeviceLane::Abort(absl::string_view reason) {
  if (std::exchange(aborted_, true)) return;
  const bool is_kept = CanBeKept();
  if (is_kept) Keep(/*in_order=*/false);
  NoteFailure(absl::AbortedError(reason));
  for (const auto& [rank, bucket] : std::exchange(held_, {})) buckets_.erase(bucket.id);
  for (const LocalRank& rank : ranks_) {
    // Those that have not begun have nothing to abort.
    if (connects_ && !is_kept) rank.member.slab->gpu()->Abort(rank.communicator, reason);
  }
  running_.clear();
}

std::vector<DeviceLane::Description> DeviceLane::Describe() const {
  std::vector<Description> all;
  for (const LocalRank& rank : ranks_) {
    const SessionSlab& slab = *rank.member.slab;
    Description& one = all.emplace_back();
    one.rank = options_.ranks[static_cast<std::size_t>(rank.member.rank)];
    one.nccl_rank = rank.member.rank;
    one.gpu = slab.uuid();
    one.is_under_mps = slab.is_under_mps();
    one.launched_by = slab.launched_by();
    one.state = "waiting";
    one.slab_bytes = slab.bytes();
    for (const auto& [id, nccl] : slab.gpu()->Describe()) {
      if (id != rank.communicator) continue;
      one.nccl_version = nccl.version;
      one.state = nccl.state;
      one.failure = nccl.failure;
      one.fusion_bytes = room_->options().fusion_bytes;
      one.why_not_registered = id_->registers ? nccl.not_registered : kNotAllRegister;
      if (nccl.registered_bytes > 0 || !one.why_not_registered.empty()) {
        one.registered_bytes = nccl.registered_bytes;
      }
    }
    // What has failed is aborted, and then the GPU's thread does not know it any more.
    if (failure_.ok()) continue;
    one.state = "failed";
    if (one.failure.empty() || aborted_) one.failure = std::string(failure_.message());
  }
  return all;
}

}  // namespace ringd
