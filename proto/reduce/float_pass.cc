// float32 and float64: calculated with as they are.
#include "proto/reduce/pass.h"
#include "proto/reduce/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "proto/reduce/float_pass.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "proto/reduce/float_operators-inl.h"
#include "proto/reduce/pass-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringd::reduce_internal::HWY_NAMESPACE {

namespace hn = ::hwy::HWY_NAMESPACE;

template <typename T>
class FloatCodec {
 public:
  using Element = T;
  using Tag = hn::ScalableTag<T>;
  static constexpr std::size_t kMaxBlockElements = 4 * hn::MaxLanes(Tag());

  explicit FloatCodec(const Scaling& scaling) : factor_(ScaleFactor<T>(scaling)) {}

  static std::size_t BlockElements() { return 4 * hn::Lanes(Tag()); }

  HWY_INLINE Quad<Tag> Load(const T* from) const {
    const Tag d;
    const std::size_t n = hn::Lanes(d);
    return {LoadVector(d, from), LoadVector(d, from + n), LoadVector(d, from + 2 * n),
            LoadVector(d, from + 3 * n)};
  }

  template <bool kPast>
  HWY_INLINE void Store(const Quad<Tag>& q, T* to) const {
    const Tag d;
    const std::size_t n = hn::Lanes(d);
    StoreVector<kPast>(d, q.v0, to);
    StoreVector<kPast>(d, q.v1, to + n);
    StoreVector<kPast>(d, q.v2, to + 2 * n);
    StoreVector<kPast>(d, q.v3, to + 3 * n);
  }

  HWY_INLINE Quad<Tag> Scale(const Quad<Tag>& q) const { return Multiply(Tag(), q, factor_); }

 private:
  T factor_;
};

void FloatPass(const Pass& pass) {
  if (pass.type == DataType::kFloat32) {
    RunWith<FloatOps, FloatCodec<float>>(pass);
  } else {
    RunWith<FloatOps, FloatCodec<double>>(pass);
  }
}

}  // namespace ringd::reduce_internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ringd::reduce_internal {

HWY_EXPORT(FloatPass);

void RunFloatPass(const Pass& pass) noexcept { HWY_DYNAMIC_DISPATCH(FloatPass)(pass); }

}  // namespace ringd::reduce_internal
#endif
