// Integers and bool.
#include <bit>
#include <cstdint>

#include "proto/reduce/integer_scaling.h"
#include "proto/reduce/pass.h"
#include "proto/reduce/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "proto/reduce/integer_pass.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "proto/reduce/pass-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringd::reduce_internal::HWY_NAMESPACE {

namespace hn = ::hwy::HWY_NAMESPACE;

// There is no multiplication of bytes: even and odd ones are multiplied as 16-bit numbers.
template <class D, class V>
HWY_INLINE V MultiplyBytes(D d, V a, V b) {
#if HWY_TARGET == HWY_SCALAR
  (void)d;
  return hn::Mul(a, b);
#else
  const hn::Repartition<std::uint16_t, D> d16;
  const auto a16 = hn::BitCast(d16, a);
  const auto b16 = hn::BitCast(d16, b);
  const auto even = hn::And(hn::Mul(a16, b16), hn::Set(d16, 0x00FF));
  const auto odd = hn::ShiftLeft<8>(hn::Mul(hn::ShiftRight<8>(a16), hn::ShiftRight<8>(b16)));
  return hn::BitCast(d, hn::Or(even, odd));
#endif
}

struct IntegerOps {
  struct Sum {
    template <class D, class V>
    HWY_INLINE V operator()(D, V a, V b) const {
      return hn::Add(a, b);
    }
  };
  struct Min {
    template <class D, class V>
    HWY_INLINE V operator()(D, V a, V b) const {
      return hn::Min(a, b);
    }
  };
  struct Max {
    template <class D, class V>
    HWY_INLINE V operator()(D, V a, V b) const {
      return hn::Max(a, b);
    }
  };
  struct Product {
    template <class D, class V>
    HWY_INLINE V operator()(D d, V a, V b) const {
      if constexpr (sizeof(hn::TFromD<D>) == 1) {
        return MultiplyBytes(d, a, b);
      } else {
        return hn::Mul(a, b);
      }
    }
  };
};

// Of zeros and ones.
struct BoolOps {
  using Sum = IntegerOps::Max;
  using Min = IntegerOps::Min;
  using Max = IntegerOps::Max;
  using Product = IntegerOps::Min;
};

template <typename T>
class IntegerCodec {
 public:
  using Element = T;
  using Tag = hn::ScalableTag<T>;
  static constexpr std::size_t kMaxBlockElements = 4 * hn::MaxLanes(Tag());

  explicit IntegerCodec(const Scaling& scaling) : scaler_(scaling), shift_(ShiftFor(scaling)) {}

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

  Quad<Tag> Scale(const Quad<Tag>& q) const {
    if (shift_ > 0) {
      return {hn::ShiftRightSame(q.v0, shift_), hn::ShiftRightSame(q.v1, shift_),
              hn::ShiftRightSame(q.v2, shift_), hn::ShiftRightSame(q.v3, shift_)};
    }
    alignas(64) T values[kMaxBlockElements];
    Store<false>(q, values);
    scaler_.Apply(values, BlockElements());
    return Load(values);
  }

 private:
  // Dividing by a power of two, and no more, is shifting (rounding down, also what is negative);
  // else 0.
  static int ShiftFor(const Scaling& scaling) {
    if (scaling.factor != 1.0 || !std::has_single_bit(static_cast<std::uint64_t>(scaling.divisor)))
      return 0;
    const int shift = std::countr_zero(static_cast<std::uint64_t>(scaling.divisor));
    return shift < static_cast<int>(8 * sizeof(T)) ? shift : 0;
  }

  IntegerScaler<T> scaler_;
  int shift_;
};

// Any byte but 0 is true.
class BoolCodec : public IntegerCodec<std::uint8_t> {
 public:
  explicit BoolCodec(const Scaling&) : IntegerCodec(Scaling{}) {}

  HWY_INLINE Quad<Tag> Load(const std::uint8_t* from) const {
    const auto one = hn::Set(Tag(), 1);
    const Quad<Tag> q = IntegerCodec::Load(from);
    return {hn::Min(q.v0, one), hn::Min(q.v1, one), hn::Min(q.v2, one), hn::Min(q.v3, one)};
  }

  HWY_INLINE Quad<Tag> Scale(const Quad<Tag>& q) const { return q; }
};

void IntegerPass(const Pass& pass) {
  switch (pass.type) {
    case DataType::kUint8:
      return RunWith<IntegerOps, IntegerCodec<std::uint8_t>>(pass);
    case DataType::kInt8:
      return RunWith<IntegerOps, IntegerCodec<std::int8_t>>(pass);
    case DataType::kUint16:
      return RunWith<IntegerOps, IntegerCodec<std::uint16_t>>(pass);
    case DataType::kInt16:
      return RunWith<IntegerOps, IntegerCodec<std::int16_t>>(pass);
    case DataType::kUint32:
      return RunWith<IntegerOps, IntegerCodec<std::uint32_t>>(pass);
    case DataType::kInt32:
      return RunWith<IntegerOps, IntegerCodec<std::int32_t>>(pass);
    case DataType::kUint64:
      return RunWith<IntegerOps, IntegerCodec<std::uint64_t>>(pass);
    case DataType::kInt64:
      return RunWith<IntegerOps, IntegerCodec<std::int64_t>>(pass);
    default:
      return RunWith<BoolOps, BoolCodec>(pass);
  }
}

}  // namespace ringd::reduce_internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ringd::reduce_internal {

HWY_EXPORT(IntegerPass);

void RunIntegerPass(const Pass& pass) noexcept { HWY_DYNAMIC_DISPATCH(IntegerPass)(pass); }

}  // namespace ringd::reduce_internal
#endif
