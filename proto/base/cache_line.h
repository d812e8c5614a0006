// The unit in which processors share memory.
#ifndef RINGD_PROTO_BASE_CACHE_LINE_H_
#define RINGD_PROTO_BASE_CACHE_LINE_H_

#include <cstddef>

namespace ringd {

// A constant of ours: std::hardware_destructive_interference_size depends on the compiler's tuning
// flags, and the layout of shared memory must not.
inline constexpr std::size_t kCacheLineBytes = 64;

}  // namespace ringd

#endif  // RINGD_PROTO_BASE_CACHE_LINE_H_
