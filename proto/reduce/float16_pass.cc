// float16 and bfloat16: calculated with as float32, rounded once at the end.
#include "proto/reduce/float16.h"
#include "proto/reduce/pass.h"
#include "proto/reduce/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "proto/reduce/float16_pass.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "proto/reduce/float_operators-inl.h"
#include "proto/reduce/pass-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringd::reduce_internal::HWY_NAMESPACE {

namespace hn = ::hwy::HWY_NAMESPACE;

// What the two formats have in common; a block is two vectors of 16-bit elements.
class Float16CodecBase {
 public:
  using Element = std::uint16_t;
  using Tag = hn::ScalableTag<float>;
  static constexpr std::size_t kMaxBlockElements = 4 * hn::MaxLanes(Tag());

  explicit Float16CodecBase(const Scaling& scaling) : factor_(ScaleFactor<float>(scaling)) {}

  static std::size_t BlockElements() { return 4 * hn::Lanes(Tag()); }

  HWY_INLINE Quad<Tag> Scale(const Quad<Tag>& q) const { return Multiply(Tag(), q, factor_); }

 private:
  float factor_;
};

#if HWY_TARGET == HWY_SCALAR

template <float (*kDecode)(std::uint16_t) noexcept, std::uint16_t (*kEncode)(float) noexcept>
class PortableFloat16Codec : public Float16CodecBase {
 public:
  using Float16CodecBase::Float16CodecBase;

  Quad<Tag> Load(const Element* from) const {
    return {Decode(from), Decode(from + 1), Decode(from + 2), Decode(from + 3)};
  }

  template <bool kPast>
  void Store(const Quad<Tag>& q, Element* to) const {
    Encode(q.v0, to);
    Encode(q.v1, to + 1);
    Encode(q.v2, to + 2);
    Encode(q.v3, to + 3);
  }

 private:
  static hn::Vec<Tag> Decode(const Element* from) {
    return hn::Set(Tag(), kDecode(hn::GetLane(LoadVector(hn::Rebind<Element, Tag>(), from))));
  }
  static void Encode(hn::Vec<Tag> v, Element* to) {
    const hn::Rebind<Element, Tag> d;
    StoreVector<false>(d, hn::Set(d, kEncode(hn::GetLane(v))), to);
  }
};

using Float16Codec = PortableFloat16Codec<&Float16ToFloat, &FloatToFloat16>;
using Bfloat16Codec = PortableFloat16Codec<&Bfloat16ToFloat, &FloatToBfloat16>;

#else

// The processor converts float16 itself (F16C).
class Float16Codec : public Float16CodecBase {
 public:
  using Float16CodecBase::Float16CodecBase;

  HWY_INLINE Quad<Tag> Load(const Element* from) const {
    const std::size_t n = hn::Lanes(Tag());
    return {Decode(from), Decode(from + n), Decode(from + 2 * n), Decode(from + 3 * n)};
  }

  template <bool kPast>
  HWY_INLINE void Store(const Quad<Tag>& q, Element* to) const {
    const hn::Repartition<std::uint16_t, Tag> d16;
    StoreVector<kPast>(d16, hn::Combine(d16, Encode(q.v1), Encode(q.v0)), to);
    StoreVector<kPast>(d16, hn::Combine(d16, Encode(q.v3), Encode(q.v2)), to + hn::Lanes(d16));
  }

 private:
  using BitsTag = hn::Rebind<std::uint16_t, Tag>;
  using HalfTag = hn::Rebind<hwy::float16_t, Tag>;

  HWY_INLINE static hn::Vec<Tag> Decode(const Element* from) {
    return hn::PromoteTo(Tag(), hn::BitCast(HalfTag(), hn::LoadU(BitsTag(), from)));
  }
  HWY_INLINE static hn::Vec<BitsTag> Encode(hn::Vec<Tag> v) {
    return hn::BitCast(BitsTag(), hn::DemoteTo(HalfTag(), v));
  }
};

// A bfloat16 is the upper half of a float32. Each vector of 16-bit elements is taken apart into its
// even and its odd elements, so that nothing has to be moved between lanes. The instructions of
// AVX512-BF16 are not used: they take subnormal numbers for zero, and the processors without them
// would differ.
class Bfloat16Codec : public Float16CodecBase {
 public:
  using Float16CodecBase::Float16CodecBase;

  HWY_INLINE Quad<Tag> Load(const Element* from) const {
    const auto a = LoadPairs(from);
    const auto b = LoadPairs(from + 2 * hn::Lanes(Tag()));
    return {Even(a), Odd(a), Even(b), Odd(b)};
  }

  template <bool kPast>
  HWY_INLINE void Store(const Quad<Tag>& q, Element* to) const {
    StorePairs<kPast>(q.v0, q.v1, to);
    StorePairs<kPast>(q.v2, q.v3, to + 2 * hn::Lanes(Tag()));
  }

 private:
  using BitsTag = hn::RebindToUnsigned<Tag>;
  using ElementTag = hn::Repartition<std::uint16_t, Tag>;
  using Bits = hn::Vec<BitsTag>;

  HWY_INLINE static Bits LoadPairs(const Element* from) {
    return hn::BitCast(BitsTag(), hn::LoadU(ElementTag(), from));
  }
  HWY_INLINE static hn::Vec<Tag> Even(Bits pairs) {
    return hn::BitCast(Tag(), hn::ShiftLeft<16>(pairs));
  }
  HWY_INLINE static hn::Vec<Tag> Odd(Bits pairs) {
    return hn::BitCast(Tag(), hn::And(pairs, hn::Set(BitsTag(), 0xFFFF0000u)));
  }

  // The bfloat16 in the upper half; the lower half is left over.
  HWY_INLINE static Bits Round(hn::Vec<Tag> v) {
    const BitsTag d;
    const Bits bits = hn::BitCast(d, v);
    const Bits odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
    const Bits rounded = hn::Add(hn::Add(bits, hn::Set(d, 0x7FFF)), odd);
    const Bits quiet = hn::Or(bits, hn::Set(d, 0x400000));
    return hn::IfThenElse(hn::RebindMask(d, hn::IsNaN(v)), quiet, rounded);
  }

  template <bool kPast>
  HWY_INLINE static void StorePairs(hn::Vec<Tag> even, hn::Vec<Tag> odd, Element* to) {
    const BitsTag d;
    const Bits pairs =
        hn::Or(hn::ShiftRight<16>(Round(even)), hn::And(Round(odd), hn::Set(d, 0xFFFF0000u)));
    StoreVector<kPast>(ElementTag(), hn::BitCast(ElementTag(), pairs), to);
  }
};

#endif  // HWY_TARGET == HWY_SCALAR

void Float16Pass(const Pass& pass) {
  if (pass.type == DataType::kFloat16) {
    RunWith<FloatOps, Float16Codec>(pass);
  } else {
    RunWith<FloatOps, Bfloat16Codec>(pass);
  }
}

}  // namespace ringd::reduce_internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ringd::reduce_internal {

HWY_EXPORT(Float16Pass);

void RunFloat16Pass(const Pass& pass) noexcept { HWY_DYNAMIC_DISPATCH(Float16Pass)(pass); }

}  // namespace ringd::reduce_internal
#endif
