// The two float8 formats: calculated with as float32, rounded once at the end.
#include "proto/reduce/float8.h"
#include "proto/reduce/pass.h"
#include "proto/reduce/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "proto/reduce/float8_pass.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "proto/reduce/float_operators-inl.h"
#include "proto/reduce/pass-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringd::reduce_internal::HWY_NAMESPACE {

namespace hn = ::hwy::HWY_NAMESPACE;

// What is alike on all processors; a block is one vector of bytes.
class Float8CodecBase {
 public:
  using Element = std::uint8_t;
  using Tag = hn::ScalableTag<float>;
  static constexpr std::size_t kMaxBlockElements = 4 * hn::MaxLanes(Tag());

  explicit Float8CodecBase(const Scaling& scaling) : factor_(ScaleFactor<float>(scaling)) {}

  static std::size_t BlockElements() { return 4 * hn::Lanes(Tag()); }

  HWY_INLINE Quad<Tag> Scale(const Quad<Tag>& q) const { return Multiply(Tag(), q, factor_); }

 private:
  float factor_;
};

#if HWY_TARGET == HWY_SCALAR

template <class Format>
class Float8Codec : public Float8CodecBase {
 public:
  using Float8CodecBase::Float8CodecBase;

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

 private:
  static float Decode(std::uint8_t bits) {
    return Format::kMantissaBits == 3 ? Float8E4M3ToFloat(bits) : Float8E5M2ToFloat(bits);
  }
};

#else

// By way of float16, which the processor converts (F16C): the byte goes to the upper half of 16 bits. Even
// and odd bytes are taken apart, so that only the step between 16 and 32 bits moves anything between lanes.
// Encoding follows FloatToFloat8 in float8.h, line by line.
template <class Format>
class Float8Codec : public Float8CodecBase {
 public:
  using Float8CodecBase::Float8CodecBase;

  HWY_INLINE Quad<Tag> Load(const Element* from) const {
    const WordTag d;
    const Words pairs = hn::BitCast(d, hn::LoadU(ByteTag(), from));
    const Words even = ToFloat16Bits(hn::ShiftLeft<8>(pairs));
    const Words odd = ToFloat16Bits(hn::And(pairs, hn::Set(d, 0xFF00)));
    return {Widen(hn::LowerHalf(HalfWordTag(), even)), Widen(hn::UpperHalf(HalfWordTag(), even)),
            Widen(hn::LowerHalf(HalfWordTag(), odd)), Widen(hn::UpperHalf(HalfWordTag(), odd))};
  }

  template <bool kPast>
  HWY_INLINE void Store(const Quad<Tag>& q, Element* to) const {
    const WordTag d;
    const Words even = hn::Combine(d, Encode(q.v1), Encode(q.v0));
    const Words odd = hn::Combine(d, Encode(q.v3), Encode(q.v2));
    StoreVector<kPast>(ByteTag(), hn::BitCast(ByteTag(), hn::Or(even, hn::ShiftLeft<8>(odd))), to);
  }

 private:
  using ByteTag = hn::Repartition<std::uint8_t, Tag>;
  using WordTag = hn::Repartition<std::uint16_t, Tag>;
  using HalfWordTag = hn::Rebind<std::uint16_t, Tag>;
  using HalfFloat16Tag = hn::Rebind<hwy::float16_t, Tag>;
  using BitsTag = hn::RebindToUnsigned<Tag>;
  using Words = hn::Vec<WordTag>;
  using Bits = hn::Vec<BitsTag>;

  static constexpr bool kIsE5M2 = Format::kMantissaBits == 2;

  // From the byte in the upper half; for E4M3 the float16 is 2^8 too small.
  HWY_INLINE static Words ToFloat16Bits(Words upper) {
    if constexpr (kIsE5M2) {
      return upper;
    } else {
      const WordTag d;
      const Words magnitude = hn::And(upper, hn::Set(d, 0x7F00));
      const Words sign = hn::And(upper, hn::Set(d, 0x8000));
      const Words value = hn::Or(sign, hn::ShiftRight<1>(magnitude));
      const auto is_nan = hn::Eq(magnitude, hn::Set(d, 0x7F00));
      return hn::Or(value, hn::IfThenElseZero(is_nan, hn::Set(d, 0x7E00)));
    }
  }

  HWY_INLINE static hn::Vec<Tag> Widen(hn::Vec<HalfWordTag> half) {
    const auto value = hn::PromoteTo(Tag(), hn::BitCast(HalfFloat16Tag(), half));
    if constexpr (kIsE5M2) {
      return value;
    } else {
      return hn::Mul(value, hn::Set(Tag(), 256.0f));
    }
  }

  HWY_INLINE static hn::Vec<HalfWordTag> Encode(hn::Vec<Tag> v) {
    constexpr int kShift = 23 - Format::kMantissaBits;
    constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - Format::kExponentBias)
                                      << Format::kMantissaBits;
    constexpr std::uint32_t kSmallestNormal = static_cast<std::uint32_t>(128 - Format::kExponentBias) << 23;
    constexpr std::uint32_t kRounder = kSmallestNormal + (static_cast<std::uint32_t>(kShift) << 23);
    const BitsTag d;
    const Tag df;
    const Bits bits = hn::BitCast(d, v);
    const Bits sign = hn::And(hn::ShiftRight<24>(bits), hn::Set(d, 0x80));
    const Bits magnitude = hn::And(bits, hn::Set(d, 0x7FFFFFFF));
    // As integers, positive floats keep their order; infinity and NaN are clamped here and put back below.
    const Bits clamped = hn::Min(magnitude, hn::Set(d, std::bit_cast<std::uint32_t>(Format::kLargest)));
    const Bits odd = hn::And(hn::ShiftRight<kShift>(clamped), hn::Set(d, 1));
    const Bits rounded = hn::Add(hn::Add(clamped, hn::Set(d, (1u << (kShift - 1)) - 1u)), odd);
    const Bits normal = hn::Sub(hn::ShiftRight<kShift>(rounded), hn::Set(d, kRebias));
    const auto rounder = hn::Set(df, std::bit_cast<float>(kRounder));
    const Bits subnormal =
        hn::Sub(hn::BitCast(d, hn::Add(hn::BitCast(df, clamped), rounder)), hn::Set(d, kRounder));
    Bits code = hn::IfThenElse(hn::Lt(clamped, hn::Set(d, kSmallestNormal)), subnormal, normal);
    const Bits infinity = hn::Set(d, 0x7F800000);
    code = hn::IfThenElse(hn::Lt(magnitude, infinity), code, hn::Set(d, Format::kInfinity));
    if constexpr (Format::kInfinity != Format::kNan) {
      code = hn::IfThenElse(hn::Gt(magnitude, infinity), hn::Set(d, Format::kNan), code);
    }
    return hn::TruncateTo(HalfWordTag(), hn::Or(code, sign));
  }
};

#endif  // HWY_TARGET == HWY_SCALAR

void Float8Pass(const Pass& pass) {
  if (pass.type == DataType::kFloat8E4M3) {
    RunWith<FloatOps>(pass, Float8Codec<Float8E4M3>(pass.scaling));
  } else {
    RunWith<FloatOps>(pass, Float8Codec<Float8E5M2>(pass.scaling));
  }
}

}  // namespace ringd::reduce_internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ringd::reduce_internal {

HWY_EXPORT(Float8Pass);

void RunFloat8Pass(const Pass& pass) noexcept { HWY_DYNAMIC_DISPATCH(Float8Pass)(pass); }

}  // namespace ringd::reduce_internal
#endif
