// What sum, min, max and product are for vectors of float or double.
#if defined(RINGD_PROTO_REDUCE_FLOAT_OPERATORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RINGD_PROTO_REDUCE_FLOAT_OPERATORS_INL_H_
#undef RINGD_PROTO_REDUCE_FLOAT_OPERATORS_INL_H_
#else
#define RINGD_PROTO_REDUCE_FLOAT_OPERATORS_INL_H_
#endif

#include "hwy/highway.h"
#include "proto/reduce/pass-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringd::reduce_internal::HWY_NAMESPACE {

namespace hn = ::hwy::HWY_NAMESPACE;

struct FloatOps {
  struct Sum {
    template <class D, class V>
    HWY_INLINE V operator()(D, V a, V b) const {
      return hn::Add(a, b);
    }
  };
  // The processor's minimum and maximum give one operand if any is NaN, not always the NaN.
  struct Min {
    template <class D, class V>
    HWY_INLINE V operator()(D, V a, V b) const {
      return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::IsNaN(b), b, hn::Min(a, b)));
    }
  };
  struct Max {
    template <class D, class V>
    HWY_INLINE V operator()(D, V a, V b) const {
      return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::IsNaN(b), b, hn::Max(a, b)));
    }
  };
  struct Product {
    template <class D, class V>
    HWY_INLINE V operator()(D, V a, V b) const {
      return hn::Mul(a, b);
    }
  };
};

// Multiplies four vectors.
template <class D>
HWY_INLINE Quad<D> Multiply(D d, const Quad<D>& q, hn::TFromD<D> factor) {
  const auto f = hn::Set(d, factor);
  return {hn::Mul(q.v0, f), hn::Mul(q.v1, f), hn::Mul(q.v2, f), hn::Mul(q.v3, f)};
}

template <typename T>
inline T ScaleFactor(const Scaling& scaling) {
  return static_cast<T>(scaling.factor / static_cast<double>(scaling.divisor));
}

}  // namespace ringd::reduce_internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // RINGD_PROTO_REDUCE_FLOAT_OPERATORS_INL_H_
