#include "backends/device/launch_message.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/text.h"

namespace ringd {
namespace {

// Of a text that the other side has written.
constexpr std::size_t kMostTextBytes = 16 * 1024;
constexpr std::chrono::hours kMostPatience{24};

absl::string_view Cut(absl::string_view text) { return CutToLength(text, kMostTextBytes); }

void WriteStatus(const absl::Status& status, v1::LaunchStatus* out) {
  out->set_code(static_cast<std::int32_t>(status.code()));
  *out->mutable_message() = std::string(Cut(status.message()));
}

absl::Status ReadStatus(const v1::LaunchStatus& status) {
  return {static_cast<absl::StatusCode>(status.code()), Cut(status.message())};
}

std::int64_t PatienceUntil(Clock::time_point deadline, Clock::time_point now) {
  const Clock::duration left = std::clamp<Clock::duration>(deadline - now, Clock::duration::zero(),
                                                           Clock::duration(kMostPatience));
  return std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
}

Clock::time_point DeadlineOf(std::int64_t patience_ns, Clock::time_point now) {
  const std::int64_t most = std::chrono::nanoseconds(kMostPatience).count();
  return now + std::chrono::nanoseconds(std::clamp<std::int64_t>(patience_ns, 0, most));
}

void WritePoints(const std::vector<TimelinePoint>& points,
                 google::protobuf::RepeatedPtrField<v1::LaunchPoint>* out) {
  out->Reserve(static_cast<int>(points.size()));
  for (const TimelinePoint& point : points) {
    v1::LaunchPoint* const to = out->Add();
    to->set_slab(point.slab.value());
    to->set_slot(point.slot);
    to->set_value(point.value);
  }
}

std::vector<TimelinePoint> ReadPoints(
    const google::protobuf::RepeatedPtrField<v1::LaunchPoint>& points) {
  std::vector<TimelinePoint> read;
  read.reserve(static_cast<std::size_t>(points.size()));
  for (const v1::LaunchPoint& point : points) {
    read.push_back({DeviceSlabId(point.slab()), point.slot(), point.value()});
  }
  return read;
}

absl::StatusOr<DataType> ReadType(std::uint32_t number) {
  const auto type = static_cast<DataType>(number);
  if (number < kDataTypeCount && IsValid(type)) return type;
  return absl::InvalidArgumentError(absl::StrCat("there is no type ", number));
}

absl::StatusOr<NcclIdBytes> ReadId(const std::string& bytes) {
  NcclIdBytes id{};
  if (bytes.size() != id.size()) {
    return absl::InvalidArgumentError(absl::StrCat("NCCL has no id of ", bytes.size(), " bytes"));
  }
  std::copy(bytes.begin(), bytes.end(), id.begin());
  return id;
}

absl::Status CarryConnect(const v1::LaunchConnect& connect, Clock::time_point now,
                          DeviceLauncher& launcher) {
  const absl::StatusOr<NcclIdBytes> id = ReadId(connect.id());
  if (!id.ok()) return id.status();
  std::optional<DeviceSlabId> registered_slab;
  if (connect.has_registered_slab()) registered_slab = DeviceSlabId(connect.registered_slab());
  launcher.Connect(DeviceCommunicatorId(connect.communicator()), *id, connect.rank(),
                   connect.size(), connect.fusion_bytes(), registered_slab,
                   DeadlineOf(connect.patience_ns(), now));
  return absl::OkStatus();
}

template <typename... Fs>
struct Visitor : Fs... {
  using Fs::operator()...;
};

}  // namespace

void WriteBucket(const DeviceBucket& bucket, Clock::time_point now, v1::LaunchBucket* out) {
  out->set_id(bucket.id);
  out->set_communicator(bucket.communicator.value());
  out->set_type(static_cast<std::uint32_t>(bucket.type));
  out->set_wire_type(static_cast<std::uint32_t>(bucket.wire_type));
  out->set_op(static_cast<std::uint32_t>(bucket.op));
  if (bucket.broadcast.has_value()) {
    out->set_is_broadcast(true);
    out->set_root(bucket.broadcast->root);
    out->set_is_root(bucket.broadcast->is_root);
  }
  out->mutable_tensors()->Reserve(static_cast<int>(bucket.tensors.size()));
  for (const DeviceTensor& tensor : bucket.tensors) {
    v1::LaunchTensor* const to = out->add_tensors();
    to->set_slab(tensor.slab.value());
    to->set_source(tensor.source);
    to->set_destination(tensor.destination);
    to->set_count(tensor.count);
    to->set_prescale(tensor.prescale);
    to->set_factor(tensor.result.factor);
    to->set_divisor(tensor.result.divisor);
  }
  WritePoints(bucket.ready, out->mutable_ready());
  WritePoints(bucket.done, out->mutable_done());
  out->set_patience_ns(PatienceUntil(bucket.deadline, now));
}

absl::StatusOr<DeviceBucket> ReadBucket(const v1::LaunchBucket& message, Clock::time_point now) {
  DeviceBucket bucket;
  bucket.id = message.id();
  bucket.communicator = DeviceCommunicatorId(message.communicator());
  const absl::StatusOr<DataType> type = ReadType(message.type());
  if (!type.ok()) return type.status();
  const absl::StatusOr<DataType> wire_type = ReadType(message.wire_type());
  if (!wire_type.ok()) return wire_type.status();
  bucket.type = *type;
  bucket.wire_type = *wire_type;
  if (message.op() >= kReduceOpCount) {
    return absl::InvalidArgumentError(absl::StrCat("there is no operator ", message.op()));
  }
  bucket.op = static_cast<ReduceOp>(message.op());
  if (message.is_broadcast()) bucket.broadcast = {message.root(), message.is_root()};
  bucket.tensors.reserve(static_cast<std::size_t>(message.tensors_size()));
  for (const v1::LaunchTensor& tensor : message.tensors()) {
    if (tensor.divisor() <= 0) return absl::InvalidArgumentError("a divisor is not above 0");
    bucket.tensors.push_back({DeviceSlabId(tensor.slab()),
                              tensor.source(),
                              tensor.destination(),
                              tensor.count(),
                              tensor.prescale(),
                              {tensor.factor(), tensor.divisor()}});
  }
  bucket.ready = ReadPoints(message.ready());
  bucket.done = ReadPoints(message.done());
  bucket.deadline = DeadlineOf(message.patience_ns(), now);
  return bucket;
}

absl::Status Carry(const v1::LaunchCommand& command, Clock::time_point now,
                   DeviceLauncher& launcher) {
  const auto slots = [](const v1::LaunchSlots& of) {
    return std::vector<std::uint32_t>(of.slots().begin(), of.slots().end());
  };
  switch (command.command_case()) {
    case v1::LaunchCommand::kCreateSlab:
      launcher.CreateSlab(DeviceSlabId(command.create_slab().slab()),
                          command.create_slab().bytes());
      return absl::OkStatus();
    case v1::LaunchCommand::kReleaseSlab:
      launcher.ReleaseSlab(DeviceSlabId(command.release_slab().slab()),
                           slots(command.release_slab()));
      return absl::OkStatus();
    case v1::LaunchCommand::kReleaseSlots:
      launcher.ReleaseSlots(DeviceSlabId(command.release_slots().slab()),
                            slots(command.release_slots()));
      return absl::OkStatus();
    case v1::LaunchCommand::kCreateId:
      launcher.CreateId(command.create_id());
      return absl::OkStatus();
    case v1::LaunchCommand::kConnect:
      return CarryConnect(command.connect(), now, launcher);
    case v1::LaunchCommand::kDisconnect:
      launcher.Disconnect(DeviceCommunicatorId(command.disconnect().communicator()),
                          DeadlineOf(command.disconnect().patience_ns(), now));
      return absl::OkStatus();
    case v1::LaunchCommand::kAbort:
      launcher.Abort(DeviceCommunicatorId(command.abort().communicator()),
                     Cut(command.abort().reason()));
      return absl::OkStatus();
    case v1::LaunchCommand::kEnqueue: {
      absl::StatusOr<DeviceBucket> bucket = ReadBucket(command.enqueue(), now);
      if (!bucket.ok()) return bucket.status();
      launcher.Enqueue(*std::move(bucket));
      return absl::OkStatus();
    }
    case v1::LaunchCommand::kOpen:
    case v1::LaunchCommand::COMMAND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("a command that is not known here");
}

std::optional<v1::LaunchEvent> WriteEvent(const DeviceEvent& event) {
  v1::LaunchEvent out;
  const auto write_connected = [](const auto& from, v1::LaunchConnected* to) {
    to->set_communicator(from.communicator.value());
    WriteStatus(from.status, to->mutable_status());
    to->set_is_lost_gpu(from.is_lost_gpu);
  };
  std::visit(Visitor{
                 [&](const DeviceOpened& opened) {
                   v1::LaunchOpened* const to = out.mutable_opened();
                   WriteStatus(opened.status, to->mutable_status());
                   if (opened.is_under_mps) to->set_is_under_mps(*opened.is_under_mps);
                   to->set_nccl_version(opened.nccl_version);
                   to->set_registers(opened.registers);
                 },
                 [&](const DeviceSlabCreated& created) {
                   v1::LaunchSlabCreated* const to = out.mutable_slab_created();
                   to->set_slab(created.slab.value());
                   WriteStatus(created.status, to->mutable_status());
                   to->set_bytes(created.bytes);
                 },
                 [](const DeviceSlabReleased&) {},
                 [&](const NcclIdCreated& created) {
                   v1::LaunchIdCreated* const to = out.mutable_id_created();
                   to->set_request(created.request);
                   WriteStatus(created.status, to->mutable_status());
                   to->set_id(created.id.data(), created.id.size());
                 },
                 [&](const DeviceCommunicatorConnected& connected) {
                   write_connected(connected, out.mutable_connected());
                 },
                 [&](const DeviceMemoryRegistered& registered) {
                   v1::LaunchRegistered* const to = out.mutable_registered();
                   to->set_communicator(registered.communicator.value());
                   to->set_bytes(registered.bytes);
                   *to->mutable_why_not() = std::string(Cut(registered.why_not));
                 },
                 [&](const DeviceCommunicatorFailed& failed) {
                   write_connected(failed, out.mutable_failed());
                 },
                 [&](const DeviceBucketAwaits& told) {
                   v1::LaunchBucketAwaits* const to = out.mutable_bucket_awaits();
                   to->set_bucket(told.bucket);
                   to->set_communicator(told.communicator.value());
                   to->set_awaits(told.awaits);
                 },
                 [&](const DeviceBucketEnded& ended) {
                   v1::LaunchBucketEnded* const to = out.mutable_bucket_ended();
                   to->set_bucket(ended.bucket);
                   to->set_communicator(ended.communicator.value());
                   WriteStatus(ended.status, to->mutable_status());
                 },
                 [&](const DeviceLost& lost) { WriteStatus(lost.status, out.mutable_lost()); },
             },
             event);
  if (out.event_case() == v1::LaunchEvent::EVENT_NOT_SET) return std::nullopt;
  return out;
}

absl::StatusOr<DeviceEvent> ReadEvent(const v1::LaunchEvent& message) {
  switch (message.event_case()) {
    case v1::LaunchEvent::kOpened: {
      const v1::LaunchOpened& opened = message.opened();
      DeviceOpened event{ReadStatus(opened.status()), std::nullopt,
                         std::string(Cut(opened.nccl_version())), opened.registers()};
      if (opened.has_is_under_mps()) event.is_under_mps = opened.is_under_mps();
      return event;
    }
    case v1::LaunchEvent::kSlabCreated: {
      const v1::LaunchSlabCreated& created = message.slab_created();
      DeviceSlabCreated event;
      event.slab = DeviceSlabId(created.slab());
      event.status = ReadStatus(created.status());
      event.bytes = created.bytes();
      return event;
    }
    case v1::LaunchEvent::kIdCreated: {
      NcclIdCreated event{
          message.id_created().request(), ReadStatus(message.id_created().status()), {}};
      const absl::StatusOr<NcclIdBytes> id = ReadId(message.id_created().id());
      if (!id.ok()) return id.status();
      event.id = *id;
      return event;
    }
    case v1::LaunchEvent::kConnected:
      return DeviceCommunicatorConnected{DeviceCommunicatorId(message.connected().communicator()),
                                         ReadStatus(message.connected().status()),
                                         message.connected().is_lost_gpu()};
    case v1::LaunchEvent::kRegistered:
      return DeviceMemoryRegistered{DeviceCommunicatorId(message.registered().communicator()),
                                    message.registered().bytes(),
                                    std::string(Cut(message.registered().why_not()))};
    case v1::LaunchEvent::kFailed:
      return DeviceCommunicatorFailed{DeviceCommunicatorId(message.failed().communicator()),
                                      ReadStatus(message.failed().status()),
                                      message.failed().is_lost_gpu()};
    case v1::LaunchEvent::kBucketAwaits:
      return DeviceBucketAwaits{message.bucket_awaits().bucket(),
                                DeviceCommunicatorId(message.bucket_awaits().communicator()),
                                message.bucket_awaits().awaits()};
    case v1::LaunchEvent::kBucketEnded:
      return DeviceBucketEnded{message.bucket_ended().bucket(),
                               DeviceCommunicatorId(message.bucket_ended().communicator()),
                               ReadStatus(message.bucket_ended().status()),
                               {}};
    case v1::LaunchEvent::kLost:
      return DeviceLost{ReadStatus(message.lost())};
    case v1::LaunchEvent::kStep:
    case v1::LaunchEvent::EVENT_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("an event that is not known here");
}

}  // namespace ringd
