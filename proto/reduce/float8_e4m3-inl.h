// Sums, minima and maxima of float8_e4m3fn without a conversion: only shifts.
//
// A byte's sign, exponent and fraction are put where a float32 has them. Its exponent is then read
// with float32's bias, so every value is there times 2^(7-127), and e4m3's subnormals are
// float32's. Adding and comparing don't mind: what float32 keeps of a sum is the same at either
// scale, since e4m3's values are multiples of 2^-9 and the subnormals of float32 then end at 2^-29.
// Rounding is an addition to the bits, the same one for normal and subnormal numbers.
//
// Only NaN is lost on the way (its code would be the number 480), so the codes that were NaN are
// kept in mind beside the sums. Multiplying at that scale would round the subnormals twice, so
// products and scaling take the codec of float8_pass.cc.
#if defined(RINGD_PROTO_REDUCE_FLOAT8_E4M3_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RINGD_PROTO_REDUCE_FLOAT8_E4M3_INL_H_
#undef RINGD_PROTO_REDUCE_FLOAT8_E4M3_INL_H_
#else
#define RINGD_PROTO_REDUCE_FLOAT8_E4M3_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "proto/reduce/pass-inl.h"

#if HWY_TARGET != HWY_SCALAR  // which has no lanes to take a byte from

HWY_BEFORE_NAMESPACE();
namespace ringd::reduce_internal::HWY_NAMESPACE {

namespace hn = ::hwy::HWY_NAMESPACE;

using E4M3ByteTag = hn::ScalableTag<std::uint8_t>;

struct E4M3Block {
  Quad<hn::ScalableTag<float>> values;
  hn::Vec<E4M3ByteTag> nan;  // bit 7 of a byte: this element is NaN
};

template <class Op, class D>
HWY_INLINE E4M3Block CombineBlocks(D d, const E4M3Block& a, const E4M3Block& b) {
  return {CombineBlocks<Op>(d, a.values, b.values), hn::Or(a.nan, b.nan)};
}

// A block is one vector of bytes; even and odd bytes stay in their lanes throughout.
class ShiftingE4M3Codec {
 public:
  using Element = std::uint8_t;
  using Tag = hn::ScalableTag<float>;
  static constexpr std::size_t kMaxBlockElements = 4 * hn::MaxLanes(Tag());

  explicit ShiftingE4M3Codec(const Scaling&) {}

  static std::size_t BlockElements() { return 4 * hn::Lanes(Tag()); }

  HWY_INLINE E4M3Block Load(const Element* from) const {
    const ByteTag d;
    const Bytes bytes = hn::LoadU(d, from);
    const Words pairs = hn::BitCast(WordTag(), bytes);
    const Words odd = Spread(pairs);
    const Words even = Spread(hn::ShiftLeft<8>(pairs));
    return {{Upper(even), Lower(even), Upper(odd), Lower(odd)},
            hn::Add(hn::And(bytes, hn::Set(d, 0x7F)), hn::Set(d, 1))};
  }

  template <bool kPast>
  HWY_INLINE void Store(const E4M3Block& block, Element* to) const {
    const Quad<Tag>& q = block.values;
    const Words even = Encode(JoinUpper(Round(q.v0), Round(q.v1)));
    const Words odd = Encode(JoinUpper(Round(q.v2), Round(q.v3)));
    const ByteTag d;
    const hn::RebindToSigned<ByteTag> ds;
    const auto bytes =
        hn::BitCast(ds, hn::OrAnd(hn::ShiftRight<8>(even), odd, hn::Set(WordTag(), 0xFF00)));
    const auto marked =
        hn::IfNegativeThenElse(hn::BitCast(ds, block.nan), hn::Set(ds, 0x7F), bytes);
    StoreVector<kPast>(d, hn::BitCast(d, marked), to);
  }

  HWY_INLINE E4M3Block Scale(const E4M3Block& block) const { return block; }

 private:
  using ByteTag = E4M3ByteTag;
  using WordTag = hn::Repartition<std::uint16_t, Tag>;
  using BitsTag = hn::Repartition<std::uint32_t, Tag>;
  using Bytes = hn::Vec<ByteTag>;
  using Words = hn::Vec<WordTag>;
  using Bits = hn::Vec<BitsTag>;

  // Between a float32's last bit and e4m3's.
  static constexpr int kShift = 23 - 3;

  // The byte in the upper half of each word becomes the upper half of a float32: the sign stays,
  // the rest goes right by the four bits of exponent that float32 has more.
  HWY_INLINE static Words Spread(Words upper) {
    const WordTag d;
    const hn::RebindToSigned<WordTag> ds;
    const Words shifted = hn::BitCast(d, hn::ShiftRight<4>(hn::BitCast(ds, upper)));
    return hn::And(shifted, hn::Set(d, 0x87F0));
  }

  HWY_INLINE static hn::Vec<Tag> Upper(Words words) {
    const BitsTag d;
    return hn::BitCast(Tag(), hn::And(hn::BitCast(d, words), hn::Set(d, 0xFFFF0000)));
  }
  HWY_INLINE static hn::Vec<Tag> Lower(Words words) {
    return hn::BitCast(Tag(), hn::ShiftLeft<16>(hn::BitCast(BitsTag(), words)));
  }

  // To nearest even at bit kShift; what is left below it has no meaning.
  HWY_INLINE static Bits Round(hn::Vec<Tag> v) {
    const BitsTag d;
    const Bits bits = hn::BitCast(d, v);
    const Bits is_odd = hn::And(hn::ShiftRight<kShift>(bits), hn::Set(d, 1));
    return hn::Add(hn::Add(bits, hn::Set(d, (1u << (kShift - 1)) - 1)), is_odd);
  }

  HWY_INLINE static Words JoinUpper(Bits odd, Bits even) {
    const WordTag d;
    return hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<16>(even)));
  }

  // The inverse of Spread, stopping at the largest finite code; the lower half has no meaning.
  HWY_INLINE static Words Encode(Words words) {
    const WordTag d;
    const Words magnitude = hn::And(words, hn::Set(d, 0x7FFF));
    const Words code = hn::ShiftLeft<4>(hn::Min(magnitude, hn::Set(d, 0x7EF)));
    return hn::OrAnd(code, words, hn::Set(d, 0x8000));
  }
};

}  // namespace ringd::reduce_internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

#endif  // RINGD_PROTO_REDUCE_FLOAT8_E4M3_INL_H_
