// Scaling of single integers, exact, in portable C++: see Scaling in reduce.h for the meaning.
#ifndef RINGD_PROTO_REDUCE_INTEGER_ARITHMETIC_H_
#define RINGD_PROTO_REDUCE_INTEGER_ARITHMETIC_H_

#include <cstdint>
#include <limits>

namespace ringd::reduce_internal {

// floor(value / divisor) without a division instruction.
class FloorDivider {
 public:
  // Precondition: divisor > 0.
  explicit constexpr FloorDivider(std::int64_t divisor) noexcept
      : divisor_(static_cast<std::uint64_t>(divisor)), reciprocal_(~std::uint64_t{0} / divisor_) {}

  constexpr std::uint64_t operator()(std::uint64_t value) const noexcept {
    // reciprocal_ is at most 2^64 / divisor and more than one less, so the estimate is the quotient
    // or one less than it.
    const auto estimate =
        static_cast<std::uint64_t>((static_cast<unsigned __int128>(value) * reciprocal_) >> 64);
    return estimate + (value - estimate * divisor_ >= divisor_ ? 1 : 0);
  }

  constexpr std::int64_t operator()(std::int64_t value) const noexcept {
    // For a negative value, floor(value / d) = ~(~value / d), and ~value is not negative.
    const std::int64_t sign = value >> 63;
    return static_cast<std::int64_t>((*this)(static_cast<std::uint64_t>(value ^ sign))) ^ sign;
  }

 private:
  std::uint64_t divisor_;
  std::uint64_t reciprocal_;
};

// value * factor toward zero, clamped to T; 0 if that is NaN.
template <typename T>
constexpr T MultiplyClamped(T value, double factor) noexcept {
  constexpr double kLowest = static_cast<double>(std::numeric_limits<T>::min());
  // One above the largest T: a power of two, so exact also where the largest T is not.
  constexpr double kLimit = static_cast<double>(std::numeric_limits<T>::max() / 2 + 1) * 2.0;
  const double product = static_cast<double>(value) * factor;
  if (product >= kLimit) return std::numeric_limits<T>::max();
  if (product <= kLowest) return std::numeric_limits<T>::min();
  if (product != product) return 0;
  return static_cast<T>(product);
}

}  // namespace ringd::reduce_internal

#endif  // RINGD_PROTO_REDUCE_INTEGER_ARITHMETIC_H_
