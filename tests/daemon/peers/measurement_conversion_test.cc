#include "daemon/peers/measurement_conversion.h"

#include <catch2/catch.hpp>
#include <limits>
#include <string>
#include <vector>

namespace ringd {
namespace {

using std::chrono::microseconds;

NodeMeasurements Some() {
  return {{{1 << 20, microseconds(900), 32}, {64, microseconds(40), 5}},
          {{"conv1.weight", microseconds(0)}, {"fc.bias", microseconds(777)}}};
}

}  // namespace

TEST_CASE("Measurements: come back from the wire as they were") {
  const v1::NodeMessage message = ToProto(Some());
  REQUIRE(message.has_measurements());
  const auto back = FromProto(message.measurements());
  REQUIRE(back.ok());
  CHECK(back->link == Some().link);
  CHECK(back->readiness == Some().readiness);
}

TEST_CASE("Measurements: what a job's standstill of days makes of them is not told") {
  NodeMeasurements measurements = Some();
  measurements.link[0].time = std::chrono::hours(25);
  measurements.readiness[1].offset = std::chrono::hours(25);
  const auto back = FromProto(ToProto(measurements).measurements());
  REQUIRE(back.ok());
  CHECK(back->link == std::vector(1, Some().link[1]));
  CHECK(back->readiness == std::vector(1, Some().readiness[0]));
  // A job may have learned more names than a message may have.
  measurements.readiness.assign(65'537, Some().readiness[0]);
  const auto most = FromProto(ToProto(measurements).measurements());
  REQUIRE(most.ok());
  CHECK(most->readiness.size() == 65'536);
}

TEST_CASE("Measurements: what no sound peer sends is refused") {
  v1::Measurements message = ToProto(Some()).measurements();
  SECTION("no bytes") { message.mutable_link(0)->set_bytes(0); }
  SECTION("no time") { message.mutable_link(0)->set_time_ns(0); }
  SECTION("years") { message.mutable_link(0)->set_time_ns(UINT64_MAX); }
  SECTION("a step of years") { message.mutable_readiness(0)->set_offset_ns(UINT64_MAX); }
  SECTION("no name") { message.mutable_readiness(0)->clear_tensor(); }
  SECTION("a long name") { message.mutable_readiness(0)->set_tensor(std::string(513, 'x')); }
  SECTION("more sizes than there are") {
    for (int i = 0; i < 64; ++i) *message.add_link() = message.link(0);
  }
  CHECK(FromProto(message).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("AllReduceTimes: come back from the wire as they were") {
  const std::vector<AllReduceTimes> times = {{64, microseconds(95), microseconds(180)},
                                             {1024, microseconds(101), microseconds(60'000'000)}};
  google::protobuf::RepeatedPtrField<v1::AllReduceTimes> messages;
  for (const AllReduceTimes& entry : times) *messages.Add() = ToProto(entry);
  const auto back = FromProto(messages);
  REQUIRE(back.ok());
  CHECK(*back == times);
}

TEST_CASE("AllReduceTimes: what no sound peer sends is refused") {
  google::protobuf::RepeatedPtrField<v1::AllReduceTimes> messages;
  for (const std::size_t bytes : kTriedBytes) {
    *messages.Add() = ToProto(AllReduceTimes{bytes, microseconds(95), microseconds(180)});
  }
  REQUIRE(FromProto(messages).ok());
  SECTION("another size") { messages.Mutable(1)->set_bytes(1023); }
  SECTION("another order") { messages.SwapElements(0, 1); }
  SECTION("more sizes than there are") { *messages.Add() = messages.Get(0); }
  SECTION("no time") { messages.Mutable(2)->clear_flat_us(); }
  SECTION("less than none") { messages.Mutable(2)->set_doubling_us(-1); }
  SECTION("years") { messages.Mutable(2)->set_flat_us(1e15); }
  SECTION("no number") {
    messages.Mutable(0)->set_flat_us(std::numeric_limits<double>::quiet_NaN());
  }
  CHECK(FromProto(messages).status().code() == absl::StatusCode::kInvalidArgument);
}

}  // namespace ringd
