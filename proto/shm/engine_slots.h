// The places that engine processes have in memory that several of them share.
#ifndef RINGD_PROTO_SHM_ENGINE_SLOTS_H_
#define RINGD_PROTO_SHM_ENGINE_SLOTS_H_

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace ringd {

// Engines that a node has at once: each has a job, and so a rank here. A slot is an engine's number
// in all segments that it shares with others; the supervisor gives it out, and again when that
// engine has gone.
inline constexpr std::size_t kMostEngines = 256;

// A set of slots, all zero at first: empty.
//
// Thread safety: any thread of any process. Relaxed: a set publishes nothing but itself, unless its
//   user says so.
// Trust: holds whatever those who may write it have written.
struct SlotSet {
  static constexpr std::size_t kWordBits = 64;
  static constexpr std::size_t kWords = kMostEngines / kWordBits;

  // Requirement of what follows: slot < kMostEngines.
  bool Has(std::size_t slot) const noexcept {
    return (words[slot / kWordBits].load(std::memory_order_relaxed) & BitOf(slot)) != 0;
  }
  void Add(std::size_t slot) noexcept {
    words[slot / kWordBits].fetch_or(BitOf(slot), std::memory_order_seq_cst);
  }
  void Remove(std::size_t slot) noexcept {
    words[slot / kWordBits].fetch_and(~BitOf(slot), std::memory_order_seq_cst);
  }

  // Whether there is a slot besides `slot` that is in both sets.
  static bool HaveOthers(const SlotSet& one, const SlotSet& other, std::size_t slot) noexcept {
    std::uint64_t others = 0;
    for (std::size_t i = 0; i < kWords; ++i) others |= OthersIn(one, other, slot, i);
    return others != 0;
  }
  // Calls `handle` for each slot besides `slot` that is in both sets.
  template <typename Handle>
  static void ForEachOther(const SlotSet& one, const SlotSet& other, std::size_t slot,
                           Handle handle) {
    for (std::size_t i = 0; i < kWords; ++i) {
      for (std::uint64_t left = OthersIn(one, other, slot, i); left != 0; left &= left - 1) {
        handle(i * kWordBits + static_cast<std::size_t>(std::countr_zero(left)));
      }
    }
  }

  std::atomic<std::uint64_t> words[kWords];

 private:
  static constexpr std::uint64_t BitOf(std::size_t slot) noexcept {
    return std::uint64_t{1} << (slot % kWordBits);
  }
  static std::uint64_t OthersIn(const SlotSet& one, const SlotSet& other, std::size_t slot,
                                std::size_t word) noexcept {
    const std::uint64_t both = one.words[word].load(std::memory_order_relaxed) &
                               other.words[word].load(std::memory_order_relaxed);
    return word == slot / kWordBits ? both & ~BitOf(slot) : both;
  }
};
static_assert(sizeof(SlotSet) == kMostEngines / 8);

}  // namespace ringd

#endif  // RINGD_PROTO_SHM_ENGINE_SLOTS_H_
