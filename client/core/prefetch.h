// A step's operations have not been looked at since they were submitted: to take them out takes about as long as memory
// takes to bring them, unless it is asked for ahead.
#ifndef RINGD_CLIENT_CORE_PREFETCH_H_
#define RINGD_CLIENT_CORE_PREFETCH_H_

#include <cstddef>

namespace ringd::client {

// So many operations ahead.
inline constexpr std::size_t kPrefetchedOperations = 8;

// Asks for the object's first cache line, to be written to. Null is nothing.
template <typename T>
void Prefetch(const T* object) noexcept {
  if (object != nullptr) __builtin_prefetch(object, 1);
}

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_PREFETCH_H_
