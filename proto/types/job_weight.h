// A job's weight: its share of what several jobs want at once.
#ifndef RINGD_PROTO_TYPES_JOB_WEIGHT_H_
#define RINGD_PROTO_TYPES_JOB_WEIGHT_H_

#include <cstdint>

namespace ringd {

// A job of weight 3 gets three times what one of weight 1 gets.
inline constexpr std::uint32_t kMinJobWeight = 1;
inline constexpr std::uint32_t kMaxJobWeight = 100;

// In messages 0 stands for the default.
constexpr std::uint32_t JobWeightOrDefault(std::uint32_t weight) noexcept {
  return weight == 0 ? kMinJobWeight : weight;
}

}  // namespace ringd

#endif  // RINGD_PROTO_TYPES_JOB_WEIGHT_H_
