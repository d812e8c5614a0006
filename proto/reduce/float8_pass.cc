// The two float8 formats: calculated with as float32, rounded once at the end.
//
// What float8_e4m3-inl.h can't do, and all of e5m2, goes by way of float16, whose upper byte e5m2
// is.
#include <cmath>

#include "proto/reduce/float8.h"
#include "proto/reduce/pass.h"
#include "proto/reduce/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "proto/reduce/float8_pass.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "proto/reduce/float8_e4m3-inl.h"
#include "proto/reduce/float_operators-inl.h"
#include "proto/reduce/pass-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringd::reduce_internal::HWY_NAMESPACE {

namespace hn = ::hwy::HWY_NAMESPACE;

// What is calculated with. A float8 shifted into a float16's place keeps its fraction, but its
// exponent is read with float16's bias: as the value divided by kUnit. Sums, comparisons and
// factors up to 1 don't mind; products do, and factors that may overflow.
enum class Values { kDivided, kThemselves };

#if HWY_TARGET != HWY_AVX2 && HWY_TARGET != HWY_AVX3

template <class Format, Values>
class Float8Codec {
 public:
  using Element = std::uint8_t;
  using Tag = hn::CappedTag<float, 1>;
  static constexpr std::size_t kMaxBlockElements = 4;

  explicit Float8Codec(const Scaling& scaling) : factor_(ScaleFactor<float>(scaling)) {}

  static std::size_t BlockElements() { return 4; }

  Quad<Tag> Load(const Element* from) const {
    const Tag d;
    return {hn::Set(d, Decode(from[0])), hn::Set(d, Decode(from[1])), hn::Set(d, Decode(from[2])),
            hn::Set(d, Decode(from[3]))};
  }

  template <bool kPast>
  void Store(const Quad<Tag>& q, Element* to) const {
    to[0] = FloatToFloat8<Format>(hn::GetLane(q.v0));
    to[1] = FloatToFloat8<Format>(hn::GetLane(q.v1));
    to[2] = FloatToFloat8<Format>(hn::GetLane(q.v2));
    to[3] = FloatToFloat8<Format>(hn::GetLane(q.v3));
  }

  Quad<Tag> Scale(const Quad<Tag>& q) const { return Multiply(Tag(), q, factor_); }

 private:
  static float Decode(std::uint8_t bits) {
    return Format::kMantissaBits == 3 ? Float8E4M3ToFloat(bits) : Float8E5M2ToFloat(bits);
  }

  float factor_;
};

using UnscaledE4M3Codec = Float8Codec<Float8E4M3, Values::kDivided>;

#else

// A block is one vector of bytes, taken apart into even and odd bytes, so that only the steps
// between 16 and 32 bits move anything between lanes. The processor converts between float16 and
// float32 (F16C).
template <class Format, Values kValues>
class Float8Codec {
 public:
  using Element = std::uint8_t;
  using Tag = hn::ScalableTag<float>;
  static constexpr std::size_t kMaxBlockElements = 4 * hn::MaxLanes(Tag());

  explicit Float8Codec(const Scaling& scaling) : factor_(ScaleFactor<float>(scaling)) {}

  static std::size_t BlockElements() { return 4 * hn::Lanes(Tag()); }

  HWY_INLINE Quad<Tag> Load(const Element* from) const {
    const WordTag d;
    const Words pairs = hn::BitCast(d, hn::LoadU(ByteTag(), from));
    const Words even = ToFloat16(hn::ShiftLeft<8>(pairs));
    const Words odd = ToFloat16(pairs);
    const Quad<Tag> q = {
        Widen(hn::LowerHalf(HalfWordTag(), even)), Widen(hn::UpperHalf(HalfWordTag(), even)),
        Widen(hn::LowerHalf(HalfWordTag(), odd)), Widen(hn::UpperHalf(HalfWordTag(), odd))};
    return kMultiplies ? Multiply(Tag(), q, kUnit) : q;
  }

  template <bool kPast>
  HWY_INLINE void Store(const Quad<Tag>& values, Element* to) const {
    const Quad<Tag> q = kMultiplies ? Multiply(Tag(), values, 1.0f / kUnit) : values;
    const Words even = FromFloat16(Narrow(q.v0, q.v1));
    const Words odd = FromFloat16(Narrow(q.v2, q.v3));
    StoreVector<kPast>(ByteTag(), hn::BitCast(ByteTag(), hn::Or(hn::ShiftRight<8>(even), odd)), to);
  }

  HWY_INLINE Quad<Tag> Scale(const Quad<Tag>& q) const { return Multiply(Tag(), q, factor_); }

 private:
  using ByteTag = hn::Repartition<std::uint8_t, Tag>;
  using WordTag = hn::Repartition<std::uint16_t, Tag>;
  using HalfWordTag = hn::Rebind<std::uint16_t, Tag>;
  using Words = hn::Vec<WordTag>;

  static constexpr bool kIsE5M2 = Format::kMantissaBits == 2;
  static constexpr float kUnit = static_cast<float>(1 << (15 - Format::kExponentBias));
  static constexpr bool kMultiplies = kValues == Values::kThemselves && !kIsE5M2;
  // How far below a float16's exponent the float8's lies once its sign is in place.
  static constexpr int kShift = kIsE5M2 ? 0 : 1;

  // From the byte in the upper half of each word; whatever is in the lower half is dropped.
  HWY_INLINE static Words ToFloat16(Words upper) {
    const WordTag d;
    if constexpr (kIsE5M2) {
      return hn::And(upper, hn::Set(d, 0xFF00));
    } else {
      const hn::RebindToSigned<WordTag> ds;
      // The sign is shifted in twice; the copy is masked away.
      const Words shifted = hn::BitCast(d, hn::ShiftRight<1>(hn::BitCast(ds, upper)));
      const Words value = hn::And(shifted, hn::Set(d, 0xBF80));
      // NaN alone carries into bit 14, which completes the exponent of a float16's NaN.
      const Words carry = hn::And(hn::Add(value, hn::Set(d, 0x0080)), hn::Set(d, 0x4000));
      return hn::Or(value, carry);
    }
  }

  // To the byte in the upper half of each word, the lower half zero. `words` are float16 without
  // bits below the float8's fraction, but for NaN and for what is too large.
  HWY_INLINE static Words FromFloat16(Words words) {
    const WordTag d;
    const hn::RebindToSigned<WordTag> ds;
    constexpr auto kLargest = static_cast<std::int16_t>((kIsE5M2 ? 0x7B00 : 0x7E00) >> kShift);
    constexpr auto kNan = static_cast<std::int16_t>(0x7F00 >> kShift);
    const auto magnitude = hn::BitCast(ds, hn::And(words, hn::Set(d, 0x7FFF)));
    const auto is_finite = hn::Lt(magnitude, hn::Set(ds, 0x7C00));
    const auto limit = hn::IfThenElse(is_finite, hn::Set(ds, kLargest), hn::Set(ds, kNan));
    const Words code = hn::ShiftLeft<kShift>(hn::BitCast(d, hn::Min(magnitude, limit)));
    return hn::Or(code, hn::And(words, hn::Set(d, 0x8000)));
  }

  HWY_INLINE static hn::Vec<Tag> Widen(hn::Vec<HalfWordTag> half) {
    const hn::Rebind<hwy::float16_t, Tag> dh;
    return hn::PromoteTo(Tag(), hn::BitCast(dh, half));
  }

  HWY_INLINE static Words Narrow(hn::Vec<Tag> low, hn::Vec<Tag> high) {
    return hn::Combine(WordTag(), TowardZero(Round(high)), TowardZero(Round(low)));
  }

  // Rounds to the float8's fraction, to nearest even: adding and taking away a number so large that
  // its unit in the last place is the float8's step at v (or the subnormals' step).
  HWY_INLINE static hn::Vec<Tag> Round(hn::Vec<Tag> v) {
    const Tag df;
    const hn::RebindToSigned<Tag> d;
    constexpr std::int32_t kSmallestNormal = (127 - 14) << 23;  // of a float16
    constexpr std::int32_t kTooLarge = (127 + 17) << 23;  // beyond: only keeps the number finite
    constexpr std::int32_t kAbove = ((23 - Format::kMantissaBits) << 23) | (1 << 22);
    const auto exponent = hn::And(hn::BitCast(d, v), hn::Set(d, 0x7F800000));
    const auto clamped =
        hn::Min(hn::Max(exponent, hn::Set(d, kSmallestNormal)), hn::Set(d, kTooLarge));
    const auto large = hn::BitCast(df, hn::Add(clamped, hn::Set(d, kAbove)));
    return hn::CopySign(hn::Sub(hn::Add(v, large), large), v);
  }

  // Too large finite values become the largest float16, infinity stays. (Highway's DemoteTo rounds
  // to nearest, that is, to infinity.)
  HWY_INLINE static hn::Vec<HalfWordTag> TowardZero(hn::Vec<Tag> v) {
#if HWY_TARGET == HWY_AVX3
    return hn::Vec<HalfWordTag>{_mm512_cvtps_ph(v.raw, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)};
#else
    return hn::Vec<HalfWordTag>{_mm256_cvtps_ph(v.raw, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)};
#endif
  }

  float factor_;
};

using UnscaledE4M3Codec = ShiftingE4M3Codec;

#endif

void E4M3Pass(const Pass& pass) {
  const auto may_overflow = [](const Scaling& scaling) {
    return !(std::abs(ScaleFactor<float>(scaling)) <= 1);
  };
  const Scaling prescaling = {pass.prescale, 1};
  if (pass.op == ReduceOp::kProduct || may_overflow(prescaling) || may_overflow(pass.scaling)) {
    RunWith<FloatOps, Float8Codec<Float8E4M3, Values::kThemselves>>(pass);
  } else if (prescaling.IsIdentity() && pass.scaling.IsIdentity()) {
    RunWith<FloatOps, UnscaledE4M3Codec>(pass);
  } else {
    RunWith<FloatOps, Float8Codec<Float8E4M3, Values::kDivided>>(pass);
  }
}

void Float8Pass(const Pass& pass) {
  if (pass.type == DataType::kFloat8E4M3) return E4M3Pass(pass);
  RunWith<FloatOps, Float8Codec<Float8E5M2, Values::kThemselves>>(pass);
}

}  // namespace ringd::reduce_internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ringd::reduce_internal {

HWY_EXPORT(Float8Pass);

void RunFloat8Pass(const Pass& pass) noexcept { HWY_DYNAMIC_DISPATCH(Float8Pass)(pass); }

}  // namespace ringd::reduce_internal
#endif
