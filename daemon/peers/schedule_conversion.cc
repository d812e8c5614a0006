#include "daemon/peers/schedule_conversion.h"

#include <cmath>
#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace ringd {
namespace {

// The same as what is accepted at registration.
constexpr std::size_t kMaxNameBytes = 512;
constexpr int kMaxDimensions = 32;

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("malformed message from another ringd: ", what));
}

absl::Status CheckName(const std::string& name) {
  if (!name.empty() && name.size() <= kMaxNameBytes) return absl::OkStatus();
  return Malformed(absl::StrCat("a tensor name of ", name.size(), " bytes"));
}

template <typename Names>
absl::StatusOr<std::vector<std::string>> CheckedNames(const Names& names) {
  std::vector<std::string> result;
  result.reserve(static_cast<std::size_t>(names.size()));
  for (const std::string& name : names) {
    if (absl::Status status = CheckName(name); !status.ok()) return status;
    result.push_back(name);
  }
  return result;
}

// Channel 0 is the negotiated stream: it is never broken, frozen or retired.
absl::Status CheckChannel(std::uint32_t channel) {
  return channel != 0 ? absl::OkStatus() : Malformed("channel 0 where a bucket's is needed");
}

template <typename Strings>
void Append(const std::vector<std::string>& from, Strings* to) {
  to->Reserve(static_cast<int>(from.size()));
  for (const std::string& text : from) *to->Add() = text;
}

// ---- to the wire
// ---------------------------------------------------------------------------------

void Fill(const TensorMeta& meta, v1::TensorMeta* out) {
  out->set_kind(static_cast<std::uint32_t>(meta.kind));
  out->set_data_type(static_cast<std::uint32_t>(meta.dtype));
  out->set_op(static_cast<std::uint32_t>(meta.op));
  out->mutable_shape()->Add(meta.shape.begin(), meta.shape.end());
  out->set_prescale(meta.prescale);
  out->set_postscale(meta.postscale);
  out->set_root_rank(meta.root_rank.value());
  out->mutable_parts()->Add(meta.parts.begin(), meta.parts.end());
  out->set_place(static_cast<std::uint32_t>(meta.place));
}

struct NodeMessageWriter {
  v1::NodeMessage* out;

  void operator()(const Ready& ready) const {
    v1::Ready* body = out->mutable_ready();
    body->set_epoch(ready.epoch);
    for (const ReadyTensor& tensor : ready.tensors) {
      v1::ReadyTensor* entry = body->add_tensors();
      entry->set_name(tensor.name);
      entry->set_follows_wait(tensor.follows_wait);
      for (const RankMeta& report : tensor.reports) {
        v1::RankMeta* rank = entry->add_reports();
        rank->set_rank(report.rank.value());
        Fill(report.meta, rank->mutable_meta());
      }
    }
  }
  void operator()(const Break& request) const {
    v1::Break* body = out->mutable_break_bucket();
    body->set_channel(request.channel);
    body->set_reason(static_cast<std::uint32_t>(request.reason));
    body->set_started(request.started);
    Append(request.tensors, body->mutable_tensors());
  }
  void operator()(const Frozen& frozen) const {
    out->mutable_frozen()->set_channel(frozen.channel);
    out->mutable_frozen()->set_started(frozen.started);
  }
  void operator()(const Filled& filled) const {
    out->mutable_filled()->set_channel(filled.channel);
    out->mutable_filled()->set_occurrence(filled.occurrence);
  }
};

struct CoordinatorMessageWriter {
  v1::CoordinatorMessage* out;

  void operator()(const Execute& execute) const {
    v1::Execute* body = out->mutable_execute();
    body->set_sequence(execute.sequence);
    Append(execute.tensors, body->mutable_tensors());
  }
  void operator()(const FailTensor& fail) const {
    out->mutable_fail_tensor()->set_tensor(fail.tensor);
    out->mutable_fail_tensor()->set_error(fail.error);
  }
  void operator()(const Schedule& schedule) const {
    v1::Schedule* body = out->mutable_schedule();
    body->set_epoch(schedule.epoch);
    for (const ScheduledBucket& bucket : schedule.buckets) {
      v1::ScheduledBucket* entry = body->add_buckets();
      entry->set_channel(bucket.channel);
      entry->set_expected_fill_ns(bucket.expected_fill.count());
      for (const ScheduledTensor& tensor : bucket.tensors) {
        v1::ScheduledTensor* scheduled = entry->add_tensors();
        scheduled->set_name(tensor.name);
        Fill(tensor.meta, scheduled->mutable_meta());
      }
    }
  }
  void operator()(const Launch& launch) const {
    out->mutable_launch()->set_channel(launch.channel);
    out->mutable_launch()->set_occurrence(launch.occurrence);
  }
  void operator()(const Freeze& freeze) const {
    out->mutable_freeze()->set_channel(freeze.channel);
  }
  void operator()(const Retire& retire) const {
    v1::Retire* body = out->mutable_retire();
    body->set_epoch(retire.epoch);
    body->set_channel(retire.channel);
    body->set_final_count(retire.final_count);
  }
};

// ---- from the wire
// -------------------------------------------------------------------------------

absl::StatusOr<ReadyTensor> Read(const v1::ReadyTensor& tensor) {
  if (absl::Status status = CheckName(tensor.name()); !status.ok()) return status;
  if (tensor.reports().empty()) return Malformed("a ready tensor without a description");
  ReadyTensor result;
  result.name = tensor.name();
  result.follows_wait = tensor.follows_wait();
  result.reports.reserve(static_cast<std::size_t>(tensor.reports_size()));
  for (const v1::RankMeta& report : tensor.reports()) {
    if (report.rank() < 0) return Malformed(absl::StrCat("rank ", report.rank()));
    absl::StatusOr<TensorMeta> meta = FromProto(report.meta());
    if (!meta.ok()) return meta.status();
    result.reports.push_back({Rank(report.rank()), *std::move(meta)});
  }
  return result;
}

absl::StatusOr<NodeMessage> Read(const v1::Ready& ready) {
  if (ready.tensors().empty()) return Malformed("ready without tensors");
  Ready result;
  result.epoch = ready.epoch();
  result.tensors.reserve(static_cast<std::size_t>(ready.tensors_size()));
  for (const v1::ReadyTensor& tensor : ready.tensors()) {
    absl::StatusOr<ReadyTensor> entry = Read(tensor);
    if (!entry.ok()) return entry.status();
    result.tensors.push_back(*std::move(entry));
  }
  return result;
}

absl::StatusOr<NodeMessage> Read(const v1::Break& request) {
  if (absl::Status status = CheckChannel(request.channel()); !status.ok()) return status;
  if (request.reason() >= kBreakReasonCount ||
      static_cast<BreakReason>(request.reason()) == BreakReason::kReplan) {
    return Malformed(absl::StrCat("break for reason ", request.reason()));
  }
  absl::StatusOr<std::vector<std::string>> tensors = CheckedNames(request.tensors());
  if (!tensors.ok()) return tensors.status();
  return Break{request.channel(), static_cast<BreakReason>(request.reason()), request.started(),
               *std::move(tensors)};
}

absl::StatusOr<NodeMessage> Read(const v1::Frozen& frozen) {
  if (absl::Status status = CheckChannel(frozen.channel()); !status.ok()) return status;
  return Frozen{frozen.channel(), frozen.started()};
}

absl::StatusOr<NodeMessage> Read(const v1::Filled& filled) {
  if (absl::Status status = CheckChannel(filled.channel()); !status.ok()) return status;
  return Filled{filled.channel(), filled.occurrence()};
}

absl::StatusOr<CoordinatorMessage> Read(const v1::Execute& execute) {
  if (execute.tensors().empty()) return Malformed("execute without tensors");
  absl::StatusOr<std::vector<std::string>> tensors = CheckedNames(execute.tensors());
  if (!tensors.ok()) return tensors.status();
  return Execute{execute.sequence(), *std::move(tensors)};
}

absl::StatusOr<CoordinatorMessage> Read(const v1::FailTensor& fail) {
  if (absl::Status status = CheckName(fail.tensor()); !status.ok()) return status;
  return FailTensor{fail.tensor(), fail.error()};
}

absl::StatusOr<ScheduledBucket> Read(const v1::ScheduledBucket& bucket) {
  if (absl::Status status = CheckChannel(bucket.channel()); !status.ok()) return status;
  if (bucket.expected_fill_ns() < 0) {
    return Malformed(absl::StrCat("a fill time of ", bucket.expected_fill_ns(), " ns"));
  }
  if (bucket.tensors().empty()) return Malformed("a bucket without tensors");
  ScheduledBucket result;
  result.channel = bucket.channel();
  result.expected_fill = std::chrono::nanoseconds(bucket.expected_fill_ns());
  result.tensors.reserve(static_cast<std::size_t>(bucket.tensors_size()));
  for (const v1::ScheduledTensor& tensor : bucket.tensors()) {
    if (absl::Status status = CheckName(tensor.name()); !status.ok()) return status;
    absl::StatusOr<TensorMeta> meta = FromProto(tensor.meta());
    if (!meta.ok()) return meta.status();
    result.tensors.push_back({tensor.name(), *std::move(meta)});
  }
  return result;
}

absl::StatusOr<CoordinatorMessage> Read(const v1::Schedule& schedule) {
  Schedule result;
  result.epoch = schedule.epoch();
  result.buckets.reserve(static_cast<std::size_t>(schedule.buckets_size()));
  std::set<std::uint32_t> channels;
  std::set<absl::string_view> names;
  for (const v1::ScheduledBucket& bucket : schedule.buckets()) {
    absl::StatusOr<ScheduledBucket> entry = Read(bucket);
    if (!entry.ok()) return entry.status();
    if (!channels.insert(bucket.channel()).second) {
      return Malformed(absl::StrCat("channel ", bucket.channel(), " twice in one schedule"));
    }
    for (const v1::ScheduledTensor& tensor : bucket.tensors()) {
      if (!names.insert(tensor.name()).second) {
        return Malformed(absl::StrCat("tensor '", tensor.name(), "' twice in one schedule"));
      }
    }
    result.buckets.push_back(*std::move(entry));
  }
  return result;
}

absl::StatusOr<CoordinatorMessage> Read(const v1::Launch& launch) {
  if (absl::Status status = CheckChannel(launch.channel()); !status.ok()) return status;
  return Launch{launch.channel(), launch.occurrence()};
}

absl::StatusOr<CoordinatorMessage> Read(const v1::Freeze& freeze) {
  if (absl::Status status = CheckChannel(freeze.channel()); !status.ok()) return status;
  return Freeze{freeze.channel()};
}

absl::StatusOr<CoordinatorMessage> Read(const v1::Retire& retire) {
  if (absl::Status status = CheckChannel(retire.channel()); !status.ok()) return status;
  return Retire{retire.epoch(), retire.channel(), retire.final_count()};
}

}  // namespace

v1::TensorMeta ToProto(const TensorMeta& meta) {
  v1::TensorMeta result;
  Fill(meta, &result);
  return result;
}

v1::NodeMessage ToProto(const NodeMessage& message) {
  v1::NodeMessage result;
  std::visit(NodeMessageWriter{&result}, message);
  return result;
}

v1::CoordinatorMessage ToProto(const CoordinatorMessage& message) {
  v1::CoordinatorMessage result;
  std::visit(CoordinatorMessageWriter{&result}, message);
  return result;
}

absl::StatusOr<TensorMeta> FromProto(const v1::TensorMeta& meta) {
  if (meta.kind() >= kCollectiveKindCount) {
    return Malformed(absl::StrCat("collective number ", meta.kind()));
  }
  if (meta.data_type() >= kDataTypeCount) {
    return Malformed(absl::StrCat("data type number ", meta.data_type()));
  }
  if (meta.op() >= kReduceOpCount) return Malformed(absl::StrCat("operator number ", meta.op()));
  if (meta.shape_size() > kMaxDimensions) {
    return Malformed(absl::StrCat(meta.shape_size(), " dimensions"));
  }
  if (!std::isfinite(meta.prescale()) || !std::isfinite(meta.postscale())) {
    return Malformed("a scale that is not finite");
  }
  if (meta.root_rank() < 0) return Malformed(absl::StrCat("root rank ", meta.root_rank()));
  TensorMeta result;
  result.kind = static_cast<CollectiveKind>(meta.kind());
  result.dtype = static_cast<DataType>(meta.data_type());
  result.op = static_cast<ReduceOp>(meta.op());
  result.shape.assign(meta.shape().begin(), meta.shape().end());
  result.prescale = meta.prescale();
  result.postscale = meta.postscale();
  result.root_rank = Rank(meta.root_rank());
  if (const std::string problem = ProblemOfShape(result); !problem.empty()) {
    return Malformed(absl::StrCat("a tensor with ", problem));
  }
  result.parts.assign(meta.parts().begin(), meta.parts().end());
  if (!PartsFit(result)) return Malformed("parts that do not make up the tensor");
  if (meta.place() >= kTensorPlaceCount) {
    return Malformed(absl::StrCat("memory place number ", meta.place()));
  }
  result.place = static_cast<TensorPlace>(meta.place());
  return result;
}

bool IsSchedulingMessage(const v1::NodeMessage& message) noexcept {
  return message.has_ready() || message.has_break_bucket() || message.has_frozen() ||
         message.has_filled();
}

bool IsSchedulingMessage(const v1::CoordinatorMessage& message) noexcept {
  return message.has_execute() || message.has_fail_tensor() || message.has_schedule() ||
         message.has_freeze() || message.has_retire() || message.has_launch();
}

absl::StatusOr<NodeMessage> FromProto(const v1::NodeMessage& message) {
  switch (message.body_case()) {
    case v1::NodeMessage::kReady:
      return Read(message.ready());
    case v1::NodeMessage::kBreakBucket:
      return Read(message.break_bucket());
    case v1::NodeMessage::kFrozen:
      return Read(message.frozen());
    case v1::NodeMessage::kFilled:
      return Read(message.filled());
    default:
      return Malformed("not about the schedule");
  }
}

absl::StatusOr<CoordinatorMessage> FromProto(const v1::CoordinatorMessage& message) {
  switch (message.body_case()) {
    case v1::CoordinatorMessage::kExecute:
      return Read(message.execute());
    case v1::CoordinatorMessage::kFailTensor:
      return Read(message.fail_tensor());
    case v1::CoordinatorMessage::kSchedule:
      return Read(message.schedule());
    case v1::CoordinatorMessage::kFreeze:
      return Read(message.freeze());
    case v1::CoordinatorMessage::kRetire:
      return Read(message.retire());
    case v1::CoordinatorMessage::kLaunch:
      return Read(message.launch());
    default:
      return Malformed("not about the schedule");
  }
}

}  // namespace ringd
