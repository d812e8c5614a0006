// A step's operations have not been looked at since they were submitted: to end them takes about as long as memory takes
// to bring them, unless it is asked for ahead.
#ifndef RINGD_CLIENT_CORE_PREFETCH_H_
#define RINGD_CLIENT_CORE_PREFETCH_H_

#include <cstddef>

#include "proto/base/cache_line.h"

namespace ringd::client {

// So many operations ahead.
inline constexpr std::size_t kPrefetchedOperations = 8;

// Asks for the object's cache lines, to be written to. Null is nothing.
template <typename T>
void Prefetch(const T* object) noexcept {
  if (object == nullptr) return;
  const auto* const begin = reinterpret_cast<const std::byte*>(object);
  for (std::size_t i = 0; i < sizeof(T); i += kCacheLineBytes) __builtin_prefetch(begin + i, 1);
}

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_PREFETCH_H_
