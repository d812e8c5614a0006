// A copy that does not read what it is going to overwrite, and does not push the caches' content
// out.
#include <cstdint>
#include <cstring>

#include "proto/reduce/pass.h"
#include "proto/reduce/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "proto/reduce/copy_past_caches.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ringd::reduce_internal::HWY_NAMESPACE {

namespace hn = ::hwy::HWY_NAMESPACE;

void CopyPast(std::uint8_t* to, const std::uint8_t* from, std::size_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t n = hn::Lanes(d);
  const std::size_t head = (64 - reinterpret_cast<std::uintptr_t>(to) % 64) % 64;
  if (n < 16 || bytes < head + 4 * n) {
    std::memcpy(to, from, bytes);
    return;
  }
  std::memcpy(to, from, head);
  std::size_t i = head;
  for (; bytes - i >= 4 * n; i += 4 * n) {
    const auto v0 = hn::LoadU(d, from + i);
    const auto v1 = hn::LoadU(d, from + i + n);
    const auto v2 = hn::LoadU(d, from + i + 2 * n);
    const auto v3 = hn::LoadU(d, from + i + 3 * n);
    hn::Stream(v0, d, to + i);
    hn::Stream(v1, d, to + i + n);
    hn::Stream(v2, d, to + i + 2 * n);
    hn::Stream(v3, d, to + i + 3 * n);
  }
  std::memcpy(to + i, from + i, bytes - i);
  hwy::FlushStream();
}

}  // namespace ringd::reduce_internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ringd::reduce_internal {

HWY_EXPORT(CopyPast);

void CopyPastCaches(void* destination, const void* source, std::size_t bytes) noexcept {
  HWY_DYNAMIC_DISPATCH(CopyPast)
  (static_cast<std::uint8_t*>(destination), static_cast<const std::uint8_t*>(source), bytes);
}

}  // namespace ringd::reduce_internal
#endif
