#include "daemon/peers/schedule_conversion.h"

#include <catch2/catch.hpp>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace ringd {
namespace {

TensorMeta Meta() {
  TensorMeta meta;
  meta.kind = CollectiveKind::kBroadcast;
  meta.dtype = DataType::kBfloat16;
  meta.op = ReduceOp::kAverage;
  meta.shape = {3, 0, 5};
  meta.prescale = 0.5;
  meta.postscale = -2.25;
  meta.root_rank = Rank(7);
  return meta;
}

// Through bytes, as on the wire.
template <typename Proto, typename Message>
Message Sent(const Message& message) {
  Proto parsed;
  REQUIRE(parsed.ParseFromString(ToProto(message).SerializeAsString()));
  REQUIRE(IsSchedulingMessage(parsed));
  const absl::StatusOr<Message> result = FromProto(parsed);
  INFO(result.status().ToString());
  REQUIRE(result.ok());
  return *result;
}

NodeMessage SentByNode(const NodeMessage& message) { return Sent<v1::NodeMessage>(message); }
CoordinatorMessage SentByCoordinator(const CoordinatorMessage& message) {
  return Sent<v1::CoordinatorMessage>(message);
}

v1::NodeMessage ReadyProto() {
  return ToProto(NodeMessage(Ready{1, {{"weight", {{Rank(0), Meta()}}, false}}}));
}

v1::CoordinatorMessage ScheduleProto() {
  return ToProto(CoordinatorMessage(
      Schedule{5,
               {{1, std::chrono::nanoseconds(10), {{"a", Meta()}, {"b", Meta()}}},
                {2, std::chrono::nanoseconds(0), {{"c", Meta()}}}}}));
}

void CheckRefused(const v1::NodeMessage& message) {
  CHECK(FromProto(message).status().code() == absl::StatusCode::kInvalidArgument);
}
void CheckRefused(const v1::CoordinatorMessage& message) {
  CHECK(FromProto(message).status().code() == absl::StatusCode::kInvalidArgument);
}

}  // namespace

TEST_CASE("schedule conversion: every node message survives the wire") {
  const NodeMessage ready = Ready{std::uint64_t{1} << 40,
                                  {{"a", {{Rank(0), Meta()}}, true},
                                   {"b", {{Rank(2), TensorMeta{}}, {Rank(3), Meta()}}, false}}};
  CHECK(SentByNode(ready) == ready);
  const NodeMessage request = Break{9, BreakReason::kWithdrawn, 77, {"x", "y"}};
  CHECK(SentByNode(request) == request);
  const NodeMessage frozen = Frozen{4294967295u, 12};
  CHECK(SentByNode(frozen) == frozen);
  const NodeMessage filled = Filled{4294967295u, 13};
  CHECK(SentByNode(filled) == filled);
}

TEST_CASE("schedule conversion: every coordinator message survives the wire") {
  const std::vector<CoordinatorMessage> messages = {
      Execute{17, {"a", "b"}},
      FailTensor{"a", "tensor 'a': rank 0 submitted float32, rank 1 float64"},
      Schedule{5, {{1, std::chrono::nanoseconds(123456789), {{"a", Meta()}, {"b", TensorMeta{}}}}}},
      Schedule{6, {}},
      Launch{4294967295u, 14},
      Freeze{3},
      Retire{std::uint64_t{1} << 33, 3, 1000},
  };
  for (const CoordinatorMessage& message : messages) {
    CHECK(SentByCoordinator(message) == message);
  }
}

TEST_CASE("schedule conversion: messages about the job are told apart") {
  v1::NodeMessage hello;
  CHECK_FALSE(IsSchedulingMessage(hello));
  CheckRefused(hello);
  hello.mutable_hello();
  CHECK_FALSE(IsSchedulingMessage(hello));
  CheckRefused(hello);
  v1::CoordinatorMessage challenge;
  CHECK_FALSE(IsSchedulingMessage(challenge));
  challenge.mutable_membership();
  CHECK_FALSE(IsSchedulingMessage(challenge));
  CheckRefused(challenge);
}

TEST_CASE("schedule conversion: a hostile description is refused") {
  const std::vector<std::function<void(v1::TensorMeta&)>> spoilers = {
      [](v1::TensorMeta& meta) { meta.set_kind(kCollectiveKindCount); },
      [](v1::TensorMeta& meta) { meta.set_kind(256); },  // 0 in eight bits
      [](v1::TensorMeta& meta) { meta.set_data_type(kDataTypeCount); },
      [](v1::TensorMeta& meta) { meta.set_data_type(4294967295u); },
      [](v1::TensorMeta& meta) { meta.set_op(kReduceOpCount); },
      [](v1::TensorMeta& meta) { meta.add_shape(-1); },
      [](v1::TensorMeta& meta) {
        meta.add_shape(std::int64_t{1} << 31);
        meta.add_shape(std::int64_t{1} << 31);
      },
      [](v1::TensorMeta& meta) { meta.add_shape(std::numeric_limits<std::int64_t>::max()); },
      [](v1::TensorMeta& meta) {
        for (int i = 0; i < 33; ++i) meta.add_shape(1);
      },
      [](v1::TensorMeta& meta) { meta.set_prescale(std::numeric_limits<double>::quiet_NaN()); },
      [](v1::TensorMeta& meta) { meta.set_postscale(std::numeric_limits<double>::infinity()); },
      [](v1::TensorMeta& meta) { meta.set_root_rank(-1); },
      [](v1::TensorMeta& meta) { meta.set_place(kTensorPlaceCount); },
      [](v1::TensorMeta& meta) { meta.add_parts(1); },  // of a kind without
      [](v1::TensorMeta& meta) {
        meta.set_kind(static_cast<std::uint32_t>(CollectiveKind::kAllGather));
        meta.add_shape(4);
        meta.add_parts(3);
      },
      [](v1::TensorMeta& meta) {
        meta.set_kind(static_cast<std::uint32_t>(CollectiveKind::kReduceScatter));
        meta.add_shape(4);
        meta.add_parts(5);
        meta.add_parts(-1);
      },
  };
  for (std::size_t i = 0; i < spoilers.size(); ++i) {
    INFO("spoiler " << i);
    v1::TensorMeta meta = ToProto(Meta());
    meta.clear_shape();
    REQUIRE(FromProto(meta).ok());
    spoilers[i](meta);
    CHECK(FromProto(meta).status().code() == absl::StatusCode::kInvalidArgument);

    v1::NodeMessage ready = ReadyProto();
    *ready.mutable_ready()->mutable_tensors(0)->mutable_reports(0)->mutable_meta() = meta;
    CheckRefused(ready);
    v1::CoordinatorMessage schedule = ScheduleProto();
    *schedule.mutable_schedule()->mutable_buckets(1)->mutable_tensors(0)->mutable_meta() = meta;
    CheckRefused(schedule);
  }
}

TEST_CASE("schedule conversion: parts survive the wire") {
  TensorMeta meta;
  meta.kind = CollectiveKind::kAllGather;
  meta.shape = {2, 5};
  meta.parts = {3, 0, 7};
  const absl::StatusOr<TensorMeta> read = FromProto(ToProto(meta));
  REQUIRE(read.ok());
  CHECK(*read == meta);
}

TEST_CASE("schedule conversion: a tensor's place survives the wire") {
  TensorMeta meta;
  meta.place = TensorPlace::kDevice;
  const absl::StatusOr<TensorMeta> read = FromProto(ToProto(meta));
  REQUIRE(read.ok());
  CHECK(*read == meta);
}

TEST_CASE("schedule conversion: the largest description is accepted") {
  v1::TensorMeta meta = ToProto(TensorMeta{});
  meta.add_shape(std::int64_t{1} << 60);
  CHECK(FromProto(meta).ok());  // 2^62 bytes
  meta.clear_shape();
  for (int i = 0; i < 32; ++i) meta.add_shape(1);
  CHECK(FromProto(meta).ok());
  meta.clear_shape();
  for (const std::int64_t extent : {1L << 40, 1L << 40, 0L}) meta.add_shape(extent);
  CHECK(FromProto(meta).ok());  // it has no elements
}

TEST_CASE("schedule conversion: hostile node messages are refused") {
  const std::vector<std::function<void(v1::NodeMessage&)>> spoilers = {
      [](v1::NodeMessage& m) { m.mutable_ready()->clear_tensors(); },
      [](v1::NodeMessage& m) { m.mutable_ready()->mutable_tensors(0)->clear_name(); },
      [](v1::NodeMessage& m) {
        m.mutable_ready()->mutable_tensors(0)->set_name(std::string(513, 'x'));
      },
      [](v1::NodeMessage& m) { m.mutable_ready()->mutable_tensors(0)->clear_reports(); },
      [](v1::NodeMessage& m) {
        m.mutable_ready()->mutable_tensors(0)->mutable_reports(0)->set_rank(-1);
      },
      [](v1::NodeMessage& m) { m.mutable_break_bucket(); },  // channel 0
      [](v1::NodeMessage& m) {
        m.mutable_break_bucket()->set_channel(1);
        m.mutable_break_bucket()->set_reason(static_cast<std::uint32_t>(BreakReason::kReplan));
      },
      [](v1::NodeMessage& m) {
        m.mutable_break_bucket()->set_channel(1);
        m.mutable_break_bucket()->set_reason(256);
      },
      [](v1::NodeMessage& m) {
        m.mutable_break_bucket()->set_channel(1);
        m.mutable_break_bucket()->add_tensors("");
      },
      [](v1::NodeMessage& m) { m.mutable_frozen()->set_started(1); },  // channel 0
  };
  REQUIRE(FromProto(ReadyProto()).ok());
  for (std::size_t i = 0; i < spoilers.size(); ++i) {
    INFO("spoiler " << i);
    v1::NodeMessage message = ReadyProto();
    spoilers[i](message);
    CheckRefused(message);
  }
}

TEST_CASE("schedule conversion: hostile coordinator messages are refused") {
  const std::vector<std::function<void(v1::CoordinatorMessage&)>> spoilers = {
      [](v1::CoordinatorMessage& m) { m.mutable_execute(); },
      [](v1::CoordinatorMessage& m) { m.mutable_execute()->add_tensors(std::string(513, 'x')); },
      [](v1::CoordinatorMessage& m) { m.mutable_fail_tensor()->set_error("no name"); },
      [](v1::CoordinatorMessage& m) { m.mutable_freeze(); },
      [](v1::CoordinatorMessage& m) { m.mutable_retire()->set_epoch(1); },
      [](v1::CoordinatorMessage& m) { m.mutable_schedule()->mutable_buckets(0)->set_channel(0); },
      [](v1::CoordinatorMessage& m) { m.mutable_schedule()->mutable_buckets(0)->set_channel(2); },
      [](v1::CoordinatorMessage& m) { m.mutable_schedule()->mutable_buckets(0)->clear_tensors(); },
      [](v1::CoordinatorMessage& m) {
        m.mutable_schedule()->mutable_buckets(0)->set_expected_fill_ns(-1);
      },
      [](v1::CoordinatorMessage& m) {
        m.mutable_schedule()->mutable_buckets(1)->mutable_tensors(0)->set_name("a");
      },
  };
  REQUIRE(FromProto(ScheduleProto()).ok());
  for (std::size_t i = 0; i < spoilers.size(); ++i) {
    INFO("spoiler " << i);
    v1::CoordinatorMessage message = ScheduleProto();
    spoilers[i](message);
    CheckRefused(message);
  }
}

}  // namespace ringd
