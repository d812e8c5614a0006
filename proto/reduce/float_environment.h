// Makes arithmetic the same in every thread.
#ifndef RINGD_PROTO_REDUCE_FLOAT_ENVIRONMENT_H_
#define RINGD_PROTO_REDUCE_FLOAT_ENVIRONMENT_H_

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace ringd {

// While it lives, this thread rounds to nearest and keeps subnormal numbers.
//
// A trainer may have switched that off (torch.set_flush_denormal); the trainers that help ringd
// must all compute the same. Costs a few nanoseconds when there is nothing to switch.
class DefaultFloatEnvironment {
 public:
#if defined(__SSE2__)
  DefaultFloatEnvironment() noexcept : saved_(_mm_getcsr()) {
    if ((saved_ & ~kStatusFlags) != kDefault) _mm_setcsr(kDefault);
  }
  ~DefaultFloatEnvironment() {
    if ((saved_ & ~kStatusFlags) != kDefault) _mm_setcsr(saved_);
  }
#else
  DefaultFloatEnvironment() noexcept = default;
#endif
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

#if defined(__SSE2__)
 private:
  static constexpr unsigned kStatusFlags = 0x3F;
  static constexpr unsigned kDefault = 0x1F80;  // all exceptions masked

  const unsigned saved_;
#endif
};

}  // namespace ringd

#endif  // RINGD_PROTO_REDUCE_FLOAT_ENVIRONMENT_H_
