// The loop of every kernel: one pass over memory, block by block.
//
// Compiled once per instruction set (see Highway's foreach_target.h). A Codec says how a type's
// elements become vectors to calculate with and back; it has
//   using Element, using Tag (of the vectors calculated with)
//   static size_t BlockElements()
//   Accumulator Load(const Element*)                  a block, any alignment
//   template <bool kPast> void Store(Accumulator, Element*)   kPast: aligned, past the caches
//   explicit Codec(Scaling), Accumulator Scale(Accumulator)
// where an Accumulator is a Quad<Tag>, or whatever CombineBlocks is overloaded for. Four vectors in
// flight hide the latency of the narrow types' conversions.
#if defined(RINGD_PROTO_REDUCE_PASS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RINGD_PROTO_REDUCE_PASS_INL_H_
#undef RINGD_PROTO_REDUCE_PASS_INL_H_
#else
#define RINGD_PROTO_REDUCE_PASS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "proto/reduce/pass.h"

HWY_BEFORE_NAMESPACE();
namespace ringd::reduce_internal::HWY_NAMESPACE {

namespace hn = ::hwy::HWY_NAMESPACE;

template <class D>
struct Quad {
  hn::Vec<D> v0, v1, v2, v3;
};

template <class Op, class D>
HWY_INLINE Quad<D> CombineBlocks(D d, const Quad<D>& a, const Quad<D>& b) {
  const Op op;
  return {op(d, a.v0, b.v0), op(d, a.v1, b.v1), op(d, a.v2, b.v2), op(d, a.v3, b.v3)};
}

// Loads and stores a vector at any address (past the caches: an aligned one).
template <class D>
HWY_INLINE hn::Vec<D> LoadVector(D d, const hn::TFromD<D>* from) {
#if HWY_TARGET == HWY_SCALAR  // where Highway wants the elements' own alignment even so
  hn::TFromD<D> value;
  std::memcpy(&value, from, sizeof(value));
  return hn::Set(d, value);
#else
  return hn::LoadU(d, from);
#endif
}

template <bool kPast, class D>
HWY_INLINE void StoreVector(D d, hn::Vec<D> v, hn::TFromD<D>* to) {
#if HWY_TARGET == HWY_SCALAR
  (void)d;
  const hn::TFromD<D> value = hn::GetLane(v);
  std::memcpy(to, &value, sizeof(value));
#else
  if constexpr (kPast) {
    hn::Stream(v, d, to);
  } else {
    hn::StoreU(v, d, to);
  }
#endif
}

template <class Codec, class Op>
class PassRunner {
  using T = typename Codec::Element;
  using D = typename Codec::Tag;

 public:
  explicit PassRunner(const Pass& pass)
      : pass_(pass),
        codec_(pass.scaling),
        prescaler_(Scaling{pass.prescale, 1}),
        scaled_(!pass.scaling.IsIdentity()),
        prescaled_(pass.prescale != 1.0) {}

  void Run() const {
    std::size_t done = 0;
    std::size_t head = 0;
    if (pass_.past_caches && FindCommonHead(&head)) {
      Rest(0, head);
      done = Blocks<true>(head);
      hwy::FlushStream();
    } else {
      done = Blocks<false>(0);
    }
    Rest(done, pass_.count - done);
  }

 private:
  static constexpr std::size_t kStoreAlignment = 64;
  static constexpr std::size_t kCacheLine = 64;
  // Bytes asked for ahead, of all sources together: enough to hide the memory's latency, few enough
  // not to be pushed out before their turn.
  static constexpr std::size_t kPrefetchedBytes = 6144;

  static const T* Source(const Pass& pass, std::size_t i) {
    return static_cast<const T*>(pass.sources[i]);
  }
  static std::size_t InputCount(const Pass& pass) {
    return pass.source_count + (pass.partial != nullptr ? 1 : 0);
  }
  static const T* Partial(const Pass& pass) { return static_cast<const T*>(pass.partial); }
  static T* Destination(const Pass& pass, std::size_t i) {
    return static_cast<T*>(pass.destinations[i]);
  }

  // The number of elements before all destinations are aligned; false if they never are together.
  bool FindCommonHead(std::size_t* head) const {
    const auto misalignment = [this](std::size_t i) {
      return reinterpret_cast<std::uintptr_t>(pass_.destinations[i]) % kStoreAlignment;
    };
    const std::size_t first = misalignment(0);
    for (std::size_t i = 1; i < pass_.destination_count; ++i) {
      if (misalignment(i) != first) return false;
    }
    const std::size_t bytes = (kStoreAlignment - first) % kStoreAlignment;
    *head = bytes / sizeof(T);
    return bytes % sizeof(T) == 0 && *head <= pass_.count && *head <= Codec::BlockElements();
  }

  // Asks for what Blocks() reads soon after element `i`. May look beyond the ends: a prefetch never
  // faults.
  HWY_INLINE static void PrefetchAfter(const Pass& pass, std::size_t i, std::size_t distance) {
    for (std::size_t s = 0; s < pass.source_count; ++s)
      PrefetchBlock(Source(pass, s) + i, distance);
    if (pass.partial != nullptr) PrefetchBlock(Partial(pass) + i, distance);
  }

  HWY_INLINE static void PrefetchBlock(const T* element, std::size_t distance) {
    const auto address = reinterpret_cast<std::uintptr_t>(element) + distance;
    for (std::size_t line = 0; line < Codec::BlockElements() * sizeof(T); line += kCacheLine) {
      hwy::Prefetch(reinterpret_cast<const char*>(address + line));
    }
  }

  // Whole blocks from element `i`; returns the first element not done.
  template <bool kPast>
  std::size_t Blocks(std::size_t i) const {
    const std::size_t block = Codec::BlockElements();
    const Pass pass = pass_;
    const Codec codec = codec_;
    const Codec prescaler = prescaler_;
    const std::size_t prefetch_distance =
        std::max(kPrefetchedBytes / InputCount(pass), 4 * kCacheLine);
    for (; pass.count - i >= block; i += block) {
      auto result = codec.Load(Source(pass, 0) + i);
      if (prescaled_) result = prescaler.Scale(result);
      for (std::size_t s = 1; s < pass.source_count; ++s) {
        auto next = codec.Load(Source(pass, s) + i);
        if (prescaled_) next = prescaler.Scale(next);
        result = CombineBlocks<Op>(D(), result, next);
      }
      if (pass.partial != nullptr) {
        result = CombineBlocks<Op>(D(), result, codec.Load(Partial(pass) + i));
      }
      if (pass.prefetch) PrefetchAfter(pass, i, prefetch_distance);
      if (scaled_) result = codec.Scale(result);
      for (std::size_t t = 0; t < pass.destination_count; ++t) {
        codec.template Store<kPast>(result, Destination(pass, t) + i);
      }
    }
    return i;
  }

  // `n` elements from `i`, at most a block: through a buffer, with the same instructions as whole
  // blocks.
  void Rest(std::size_t i, std::size_t n) const {
    if (n == 0) return;
    alignas(64) T buffer[Codec::kMaxBlockElements];
    std::memset(buffer, 0, sizeof(buffer));
    const auto load = [&](const T* from) HWY_ATTR {
      std::memcpy(buffer, from + i, n * sizeof(T));
      return codec_.Load(buffer);
    };
    auto result = load(Source(pass_, 0));
    if (prescaled_) result = prescaler_.Scale(result);
    for (std::size_t s = 1; s < pass_.source_count; ++s) {
      auto next = load(Source(pass_, s));
      if (prescaled_) next = prescaler_.Scale(next);
      result = CombineBlocks<Op>(D(), result, next);
    }
    if (pass_.partial != nullptr) result = CombineBlocks<Op>(D(), result, load(Partial(pass_)));
    if (scaled_) result = codec_.Scale(result);
    codec_.template Store<false>(result, buffer);
    for (std::size_t t = 0; t < pass_.destination_count; ++t) {
      std::memcpy(Destination(pass_, t) + i, buffer, n * sizeof(T));
    }
  }

  const Pass& pass_;
  const Codec codec_;
  const Codec prescaler_;
  const bool scaled_;
  const bool prescaled_;
};

// Runs `pass` with the operation it names, of those that an OpSet offers.
template <class OpSet, class Codec>
HWY_INLINE void RunWith(const Pass& pass) {
  switch (pass.op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return PassRunner<Codec, typename OpSet::Sum>(pass).Run();
    case ReduceOp::kMin:
      return PassRunner<Codec, typename OpSet::Min>(pass).Run();
    case ReduceOp::kMax:
      return PassRunner<Codec, typename OpSet::Max>(pass).Run();
    case ReduceOp::kProduct:
      return PassRunner<Codec, typename OpSet::Product>(pass).Run();
  }
}

}  // namespace ringd::reduce_internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // RINGD_PROTO_REDUCE_PASS_INL_H_
