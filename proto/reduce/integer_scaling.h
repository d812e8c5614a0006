// Scaling of integers, exact: see Scaling in reduce.h for the meaning.
#ifndef RINGD_PROTO_REDUCE_INTEGER_SCALING_H_
#define RINGD_PROTO_REDUCE_INTEGER_SCALING_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "proto/reduce/integer_arithmetic.h"
#include "proto/reduce/reduce.h"

namespace ringd::reduce_internal {

// Scaling prepared for many values.
template <typename T>
class IntegerScaler {
 public:
  explicit IntegerScaler(const Scaling& scaling) noexcept
      : scaling_(scaling), divide_(scaling.divisor) {}

  void Apply(T* values, std::size_t count) const noexcept {
    if (scaling_.factor != 1.0) {
      for (std::size_t i = 0; i < count; ++i)
        values[i] = MultiplyClamped(values[i], scaling_.factor);
    }
    if (scaling_.divisor != 1) {
      for (std::size_t i = 0; i < count; ++i)
        values[i] = static_cast<T>(divide_(static_cast<Wide>(values[i])));
    }
  }

 private:
  using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;

  Scaling scaling_;
  FloorDivider divide_;
};

}  // namespace ringd::reduce_internal

#endif  // RINGD_PROTO_REDUCE_INTEGER_SCALING_H_
