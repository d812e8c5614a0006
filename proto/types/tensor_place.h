// Where a tensor lies.
#ifndef RINGD_PROTO_TYPES_TENSOR_PLACE_H_
#define RINGD_PROTO_TYPES_TENSOR_PLACE_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace ringd {

// The numbers are part of the protocol: append, never renumber.
enum class TensorPlace : std::uint8_t {
  kHost = 0,
  kDevice = 1,  // the GPU that the rank has opened
  // Likewise, but the library copies it to the host's memory and back: there it is for ringd.
  kDeviceByHost = 2,
};

inline constexpr int kTensorPlaceCount = 3;

constexpr bool IsValid(TensorPlace place) noexcept {
  return static_cast<int>(place) < kTensorPlaceCount;
}

// "host", "device", "device by host"; "invalid" for anything else.
constexpr absl::string_view Name(TensorPlace place) noexcept {
  constexpr absl::string_view kNames[kTensorPlaceCount] = {"host", "device", "device by host"};
  return IsValid(place) ? kNames[static_cast<int>(place)] : absl::string_view("invalid");
}

}  // namespace ringd

#endif  // RINGD_PROTO_TYPES_TENSOR_PLACE_H_
