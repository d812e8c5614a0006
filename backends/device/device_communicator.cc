#include "backends/device/device_communicator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ringd {
namespace {

// Buckets on the stream at once: enough that the GPU never waits for this thread.
constexpr std::size_t kMostInFlight = 32;

void AddSlab(DeviceSlabId slab, std::vector<DeviceSlabId>* slabs) {
  if (std::find(slabs->begin(), slabs->end(), slab) == slabs->end()) slabs->push_back(slab);
}

std::vector<DeviceSlabId> SlabsOf(const DeviceBucket& bucket) {
  std::vector<DeviceSlabId> slabs;
  for (const DeviceTensor& tensor : bucket.tensors) AddSlab(tensor.slab, &slabs);
  for (const TimelinePoint& point : bucket.ready) AddSlab(point.slab, &slabs);
  for (const TimelinePoint& point : bucket.done) AddSlab(point.slab, &slabs);
  return slabs;
}

// What a bucket that is late is late with, for its ranks to read.
std::string PointText(const std::vector<TimelinePoint>& points) {
  std::string text;
  for (const TimelinePoint& point : points) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", "slot ", point.slot, " of slab ",
                    point.slab.value(), " to ", point.value);
  }
  return text;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceCommunicator>> DeviceCommunicator::Begin(
    const Parts& parts, DeviceCommunicatorId id, const NcclCommunicator::Spec& spec,
    std::size_t fusion_bytes, std::optional<DeviceSlabId> registered_slab,
    Clock::time_point connect_deadline) {
  auto stream = CudaStream::Create(parts.gpu.context);
  if (!stream.ok()) return stream.status();
  auto memory = MappedMemory::Create(parts.gpu.context, fusion_bytes);
  if (absl::IsResourceExhausted(memory.status())) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for the fusion buffer: ", memory.status().message(), "; `",
                     parts.fusion_setting, "` says how large it is"));
  }
  if (!memory.ok()) return memory.status();
  std::unique_ptr<DeviceCommunicator> made(new DeviceCommunicator(parts, id, *std::move(stream)));
  made->fusion_memory_ = *std::move(memory);
  made->fusion_ = {made->fusion_memory_.address(), fusion_bytes, parts.fusion_setting};
  made->size_ = spec.size;
  made->connect_deadline_ = connect_deadline;
  for (std::size_t i = 0; i < 2 * (kMostInFlight + 1); ++i) {
    auto event = CudaEvent::Create(parts.gpu.context);
    if (!event.ok()) return event.status();
    made->free_events_.push_back(*std::move(event));
  }
  if (registered_slab) {
    auto registered = RegisteredBuffers::Create({parts.gpu.context, &made->stream_, parts.slabs,
                                                 spec.size, made->fusion_memory_.address(),
                                                 made->fusion_memory_.bytes(), *registered_slab});
    if (!registered.ok()) return registered.status();
    made->registered_ = *std::move(registered);
  }
  auto nccl = NcclCommunicator::Begin(parts.gpu.nccl, spec);
  if (!nccl.ok()) return nccl.status();
  made->nccl_ = *std::move(nccl);
  if (registered_slab) made->registered_->Use(made->nccl_.get());
  return made;
}

absl::Status DeviceCommunicator::Note(absl::Status status) {
  if (absl::IsAborted(status) && device_error_.ok()) device_error_ = status;
  return status;
}

const absl::Status& DeviceCommunicator::FindDeviceError() {
  if (device_error_.ok()) (void)Note(stream_.WaitIdle(Clock::time_point()));
  return device_error_;
}

absl::Status DeviceCommunicator::CheckPoints(const DeviceBucket& bucket) const {
  for (const auto* points : {&bucket.ready, &bucket.done}) {
    for (const TimelinePoint& point : *points) {
      if (!IsTimelineSlot(point.slot) || !IsTimelineValue(point.value)) {
        return absl::InvalidArgumentError(
            absl::StrCat("a timeline has no slot ", point.slot, " with the value ", point.value));
      }
      if (parts_.slabs->Find(point.slab) == nullptr) {
        return absl::InvalidArgumentError(
            absl::StrCat("slab ", point.slab.value(), " is not there, or no longer"));
      }
    }
  }
  return absl::OkStatus();
}

DeviceCommunicator::Verdict DeviceCommunicator::Offer(DeviceBucket* bucket, Clock::time_point now,
                                                      absl::Status* status) {
  if (in_flight_.size() >= kMostInFlight) return Verdict::kLater;
  // Also before one that is refused here: other ranks may launch theirs.
  if (registered_ != nullptr && !registered_->has_agreed()) {
    registered_->BeginAgreeing(bucket->deadline);
    return Verdict::kLater;
  }
  Bucket made;
  *status = CheckPoints(*bucket);
  if (!status->ok()) return Verdict::kRefused;
  const auto find = [this](DeviceSlabId id) -> std::optional<SlabRange> {
    const DeviceSlab* const slab = parts_.slabs->Find(id);
    if (slab == nullptr) return std::nullopt;
    return SlabRange{slab->address(), slab->bytes()};
  };
  *status = PlanBucket(*bucket, size_, find, fusion_, &made.plan);
  if (status->ok()) {
    if (!bucket->broadcast) {
      *status = CheckNcclReduction(*parts_.gpu.nccl, parts_.gpu.context->compute_major(),
                                   bucket->wire_type, made.plan.op);
    }
  }
  if (!status->ok()) return Verdict::kRefused;
  made.number = numbered_ + 1;
  const absl::Status tabled = FindTable(&made);
  if (absl::IsUnavailable(tabled)) return Verdict::kLater;
  made.slabs = SlabsOf(*bucket);
  for (const DeviceSlabId slab : made.slabs) parts_.slabs->Use(slab);
  made.bucket = std::move(*bucket);
  numbered_ = made.number;
  launching_ = std::move(made);
  *status = tabled;
  if (status->ok() && registered_ != nullptr) {
    *status = registered_->Cover(launching_->bucket.tensors);
  }
  if (status->ok()) *status = LaunchFirstHalf(&*launching_);
  if (status->ok()) *status = FinishLaunch(now);
  return status->ok() ? Verdict::kTaken : Verdict::kFailed;
}

absl::Status DeviceCommunicator::FindTable(Bucket* bucket) {
  const auto pack = bucket->plan.pack.segments();
  const auto unpack = bucket->plan.unpack.segments();
  if (pack.empty() && unpack.empty()) return absl::OkStatus();
  segments_.assign(pack.begin(), pack.end());
  segments_.insert(segments_.end(), unpack.begin(), unpack.end());
  const auto table = tables_.Find(segments_, bucket->number, finished_);
  if (!table.ok()) return Note(table.status());
  bucket->table = *table;
  return absl::OkStatus();
}

// Those that are no point of a slab's timeline are left out: nobody can wait for them.
const std::vector<TimelineMark>& DeviceCommunicator::MarksOf(
    const std::vector<TimelinePoint>& points) {
  marks_.clear();
  for (const TimelinePoint& point : points) {
    const DeviceSlab* const slab = parts_.slabs->FindAny(point.slab);
    if (slab == nullptr) continue;
    const auto mark = slab->timeline().At(point.slot, point.value);
    if (mark.ok()) marks_.push_back(*mark);
  }
  return marks_;
}

absl::Status DeviceCommunicator::TakeEvent(std::optional<CudaEvent>* event) {
  event->emplace(std::move(free_events_.back()));
  free_events_.pop_back();
  return Note((*event)->Record(stream_.handle()));
}

absl::Status DeviceCommunicator::LaunchFirstHalf(Bucket* bucket) {
  if (!bucket->bucket.ready.empty()) {
    const auto& marks = MarksOf(bucket->bucket.ready);
    if (auto status = Note(WaitAll(*parts_.gpu.context, stream_.handle(), marks)); !status.ok()) {
      return status;
    }
    if (auto status = TakeEvent(&bucket->ready); !status.ok()) return status;
  }
  const BucketPlan& plan = bucket->plan;
  if (auto status = Note(parts_.gpu.kernel->Launch(stream_.handle(), plan.pack, bucket->table));
      !status.ok()) {
    return status;
  }
  if (plan.count == 0) return absl::OkStatus();
  if (bucket->bucket.broadcast) {
    return nccl_->Broadcast(plan.send, plan.receive, plan.count * bucket->bucket.nccl_parts(),
                            bucket->bucket.broadcast->root, stream_.handle());
  }
  return nccl_->AllReduce(plan.send, plan.receive, plan.count, bucket->bucket.nccl_type(), plan.op,
                          stream_.handle());
}

absl::Status DeviceCommunicator::LaunchSecondHalf(Bucket* bucket) {
  const BucketPlan& plan = bucket->plan;
  const DeviceAddress table = bucket->table + plan.pack.segments().size_bytes();
  if (auto status = Note(parts_.gpu.kernel->Launch(stream_.handle(), plan.unpack, table));
      !status.ok()) {
    return status;
  }
  const auto& marks = MarksOf(bucket->bucket.done);
  if (auto status = Note(SignalAll(*parts_.gpu.context, stream_.handle(), marks)); !status.ok()) {
    return status;
  }
  return TakeEvent(&bucket->done);
}

// NCCL says when the collective is on the stream; not before may anything be put behind it.
absl::Status DeviceCommunicator::FinishLaunch(Clock::time_point now) {
  if (!launching_) return absl::OkStatus();
  const NcclCommunicator::State state = nccl_->Poll();
  if (state == NcclCommunicator::State::kFailed) return nccl_->status();
  if (state == NcclCommunicator::State::kInProgress) {
    if (now < launching_->bucket.deadline) return absl::OkStatus();
    return absl::DeadlineExceededError("NCCL has not launched a collective in time");
  }
  if (auto status = LaunchSecondHalf(&*launching_); !status.ok()) return status;
  launching_->times.launched = now;
  if (parts_.on_launched) parts_.on_launched(launching_->bucket.done);
  in_flight_.push_back(*std::move(launching_));
  launching_.reset();
  return absl::OkStatus();
}

absl::Status DeviceCommunicator::Connect(Clock::time_point now) {
  switch (nccl_->Poll()) {
    case NcclCommunicator::State::kReady:
      phase_ = Phase::kReady;
      return absl::OkStatus();
    case NcclCommunicator::State::kFailed:
      return nccl_->status();
    case NcclCommunicator::State::kInProgress:
      break;
  }
  if (now < connect_deadline_) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("NCCL's ranks have not met in time: of ", size_, " some never came"));
}

absl::Status DeviceCommunicator::Advance(Clock::time_point now,
                                         std::vector<DeviceBucketEnded>* ended) {
  if (phase_ == Phase::kFailed || phase_ == Phase::kLeaving) return absl::OkStatus();
  if (phase_ == Phase::kConnecting) return Connect(now);
  if (is_agreeing()) return registered_->AdvanceAgreeing(now);
  if (launching_) {
    if (auto status = FinishLaunch(now); !status.ok()) return status;
  } else if (nccl_->Poll() == NcclCommunicator::State::kFailed) {
    return nccl_->status();
  }
  if (auto status = Collect(now, ended); !status.ok()) return status;
  if (registered_ != nullptr && !has_work()) {
    if (auto status = registered_->DeregisterLeaving(); !status.ok()) return status;
  }
  return CheckDeadline(now);
}

absl::Status DeviceCommunicator::Collect(Clock::time_point now,
                                         std::vector<DeviceBucketEnded>* ended) {
  while (!in_flight_.empty()) {
    Bucket& first = in_flight_.front();
    const absl::StatusOr<bool> is_done = first.done->IsReached();
    if (!is_done.ok()) return Note(is_done.status());
    if (!*is_done) break;
    if (first.times.ready == Clock::time_point()) first.times.ready = now;
    first.times.done = now;
    ended->push_back({first.bucket.id, id_, absl::OkStatus(), first.times});
    finished_ = first.number;
    Retire(&first);
    in_flight_.pop_front();
  }
  return LookWhetherReady(now);
}

absl::Status DeviceCommunicator::LookWhetherReady(Clock::time_point now) {
  if (in_flight_.empty()) return absl::OkStatus();
  Bucket& first = in_flight_.front();
  if (!first.ready || first.times.ready != Clock::time_point()) return absl::OkStatus();
  const absl::StatusOr<bool> is_ready = first.ready->IsReached();
  if (!is_ready.ok()) return Note(is_ready.status());
  if (*is_ready) {
    first.times.ready = now;
    if (first.awaits_told) awaits_ = {first.bucket.id, id_, false};
    return absl::OkStatus();
  }
  if (first.first_since == Clock::time_point()) first.first_since = now;
  if (now - first.first_since < kLongAwaited || first.awaits_told) return absl::OkStatus();
  first.awaits_told = true;
  awaits_ = {first.bucket.id, id_, true};
  return absl::OkStatus();
}

absl::Status DeviceCommunicator::CheckDeadline(Clock::time_point now) const {
  if (in_flight_.empty() || now < in_flight_.front().bucket.deadline) return absl::OkStatus();
  const Bucket& late = in_flight_.front();
  if (late.ready && late.times.ready == Clock::time_point()) {
    return absl::DeadlineExceededError(absl::StrCat(
        "this rank's stream has not got its tensors ready in time: ", PointText(late.bucket.ready),
        " was to come"));
  }
  return absl::DeadlineExceededError(
      absl::StrCat(late.bucket.broadcast ? "a broadcast of " : "an all-reduce of ", late.plan.count,
                   " elements of type ", Name(late.bucket.wire_type), " over ", size_,
                   " ranks has not ended in time: this rank is in it, some other is not"));
}

void DeviceCommunicator::Retire(Bucket* bucket) {
  for (const DeviceSlabId slab : bucket->slabs) parts_.slabs->Unuse(slab);
  for (std::optional<CudaEvent>* event : {&bucket->ready, &bucket->done}) {
    if (*event) free_events_.push_back(*std::move(*event));
    event->reset();
  }
}

absl::StatusOr<bool> DeviceCommunicator::Leave() {
  if (phase_ == Phase::kReady) {
    phase_ = Phase::kLeaving;
    if (registered_ != nullptr) {
      if (auto status = registered_->DeregisterAll(); !status.ok()) return status;
    }
    if (auto status = nccl_->BeginFinalize(); !status.ok()) return status;
  }
  if (is_destroying_) return nccl_->IsGone();
  switch (nccl_->Poll()) {
    case NcclCommunicator::State::kInProgress:
      return false;
    case NcclCommunicator::State::kFailed:
      return nccl_->status();
    case NcclCommunicator::State::kReady:
      break;
  }
  is_destroying_ = true;
  nccl_->BeginDestroy();
  return nccl_->IsGone();
}

void DeviceCommunicator::SignalRefused(const DeviceBucket& bucket) {
  (void)Note(SignalAll(*parts_.gpu.context, stream_.handle(), MarksOf(bucket.done)));
}

}  // namespace ringd
