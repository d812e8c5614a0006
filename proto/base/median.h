// The middle of some values.
#ifndef RINGD_PROTO_BASE_MEDIAN_H_
#define RINGD_PROTO_BASE_MEDIAN_H_

#include <algorithm>
#include <cstddef>
#include <vector>

namespace ringd {

// Of an even number of values the greater of the two in the middle. Leaves them in another order.
// Requirement: there is at least one.
template <typename Value>
Value MedianOf(std::vector<Value>& values) noexcept {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace ringd

#endif  // RINGD_PROTO_BASE_MEDIAN_H_
