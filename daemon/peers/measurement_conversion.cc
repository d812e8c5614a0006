#include "daemon/peers/measurement_conversion.h"

#include <chrono>
#include <cmath>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ringd {
namespace {

constexpr int kMaxObservations = 64;  // one for each power of two
constexpr int kMaxTensors = 65'536;
constexpr std::size_t kMaxNameBytes = 512;
// What takes longer (a job that stands still for days, in a debugger) is not told. Also keeps sums
// from overflowing.
constexpr std::uint64_t kLongestNs = std::uint64_t{24} * 3600 * 1'000'000'000;

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("malformed message from another ringd: ", what));
}

bool IsTold(std::chrono::nanoseconds time) {
  return time.count() >= 0 && static_cast<std::uint64_t>(time.count()) <= kLongestNs;
}

double Microseconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

// Of an all-reduce.
std::optional<std::chrono::nanoseconds> CheckedTime(double us) {
  constexpr double kShortestUs = 1e-3;
  constexpr double kLongestUs = 60e6;
  if (!(us >= kShortestUs && us <= kLongestUs)) return std::nullopt;
  return std::chrono::nanoseconds(std::llround(us * 1e3));
}

}  // namespace

v1::NodeMessage ToProto(const NodeMeasurements& measurements) {
  v1::NodeMessage message;
  v1::Measurements& out = *message.mutable_measurements();
  for (const LinkObservation& seen : measurements.link) {
    if (!IsTold(seen.time)) continue;
    v1::LinkObservation* entry = out.add_link();
    entry->set_bytes(seen.bytes);
    entry->set_time_ns(static_cast<std::uint64_t>(seen.time.count()));
    entry->set_samples(seen.samples);
  }
  for (const TensorReadiness& ready : measurements.readiness) {
    if (out.readiness_size() == kMaxTensors) break;
    if (!IsTold(ready.offset)) continue;
    v1::TensorReadiness* entry = out.add_readiness();
    entry->set_tensor(ready.tensor);
    entry->set_offset_ns(static_cast<std::uint64_t>(ready.offset.count()));
  }
  return message;
}

absl::StatusOr<NodeMeasurements> FromProto(const v1::Measurements& message) {
  if (message.link_size() > kMaxObservations || message.readiness_size() > kMaxTensors) {
    return Malformed(absl::StrCat(message.link_size(), " sizes and ", message.readiness_size(),
                                  " tensors measured"));
  }
  NodeMeasurements measurements;
  for (const v1::LinkObservation& seen : message.link()) {
    if (seen.bytes() == 0 || seen.time_ns() == 0 || seen.time_ns() > kLongestNs) {
      return Malformed(absl::StrCat(seen.bytes(), " bytes in ", seen.time_ns(), " ns"));
    }
    measurements.link.push_back(
        {seen.bytes(), std::chrono::nanoseconds(seen.time_ns()), seen.samples()});
  }
  for (const v1::TensorReadiness& ready : message.readiness()) {
    if (ready.tensor().empty() || ready.tensor().size() > kMaxNameBytes) {
      return Malformed(absl::StrCat("a tensor name of ", ready.tensor().size(), " bytes"));
    }
    if (ready.offset_ns() > kLongestNs) {
      return Malformed(absl::StrCat("a tensor ready after ", ready.offset_ns(), " ns"));
    }
    measurements.readiness.push_back({ready.tensor(), std::chrono::nanoseconds(ready.offset_ns())});
  }
  return measurements;
}

v1::AllReduceTimes ToProto(const AllReduceTimes& times) {
  v1::AllReduceTimes message;
  message.set_bytes(times.bytes);
  message.set_flat_us(Microseconds(times.flat));
  message.set_doubling_us(Microseconds(times.doubling));
  return message;
}

absl::StatusOr<std::vector<AllReduceTimes>> FromProto(
    const google::protobuf::RepeatedPtrField<v1::AllReduceTimes>& messages) {
  std::vector<AllReduceTimes> result;
  for (const v1::AllReduceTimes& message : messages) {
    const auto flat = CheckedTime(message.flat_us());
    const auto doubling = CheckedTime(message.doubling_us());
    if (result.size() == kTriedBytes.size() || message.bytes() != kTriedBytes[result.size()] ||
        !flat.has_value() || !doubling.has_value()) {
      return Malformed(absl::StrCat("an all-reduce of ", message.bytes(), " bytes in ",
                                    message.flat_us(), " or ", message.doubling_us(), " us"));
    }
    result.push_back({kTriedBytes[result.size()], *flat, *doubling});
  }
  return result;
}

}  // namespace ringd
