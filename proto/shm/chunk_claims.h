// The word in which the chunks of one occurrence are claimed and marked done: SharedTensor::work.
//
//   bits 63..56  tag of the occurrence, 1 to 255; the whole word is 0 while no occurrence is in
//                work
//   bits 55..28  claimed chunks
//   bits 27..0   done chunks
//
// See job_segment.h for the protocol.
//
// Thread safety: any thread of any member.
#ifndef RINGD_PROTO_SHM_CHUNK_CLAIMS_H_
#define RINGD_PROTO_SHM_CHUNK_CLAIMS_H_

#include <atomic>
#include <bit>
#include <cstdint>

#include "proto/shm/job_segment.h"

namespace ringd {

inline constexpr int kNoChunk = -1;

class ChunkClaims {
 public:
  // `chunk_count`: 1 to kMaxChunks.
  ChunkClaims(SharedTensor& state, std::uint64_t occurrence, std::uint32_t chunk_count) noexcept
      : state_(state),
        finished_(occurrence + 1),
        tag_(Tag(occurrence)),
        all_((std::uint64_t{1} << chunk_count) - 1) {}

  bool Finished() const noexcept {
    return state_.finished.load(std::memory_order_acquire) >= finished_;
  }

  // True if a chunk is being reduced, of whichever occurrence.
  static bool InWork(const SharedTensor& state) noexcept {
    const std::uint64_t word = state.work.load(std::memory_order_relaxed);
    return (word >> kClaimShift & ~word & ((std::uint64_t{1} << kClaimShift) - 1)) != 0;
  }

  static constexpr std::uint64_t kAnyChunk = ~std::uint64_t{0};

  // Takes a chunk that nobody has: the first free one from `preferred` on, round and round, of
  // those whose bits are in `among`. kNoChunk: there is none, or another occurrence has not quite
  // ended. Requirement: the caller's member has ended the occurrence before this one, and found
  // this one arrived.
  int Claim(std::uint32_t preferred, std::uint64_t among = kAnyChunk) noexcept {
    std::uint64_t word = state_.work.load(std::memory_order_acquire);
    for (;;) {
      if (word != 0 && !Owns(word)) return kNoChunk;
      const std::uint64_t free = Free(word) & among;
      if (free == 0) return kNoChunk;
      const std::uint64_t later = free >> preferred << preferred;
      const int chunk = std::countr_zero(later != 0 ? later : free);
      const std::uint64_t claimed = (word | tag_) | ClaimBit(chunk);
      if (!state_.work.compare_exchange_weak(word, claimed, std::memory_order_acq_rel,
                                             std::memory_order_acquire)) {
        continue;
      }
      if (!Finished()) return chunk;
      TakeBack(chunk);
      return kNoChunk;
    }
  }

  // The chunk is reduced. True if it was the last one: the occurrence has finished, and the
  // caller wakes who sleeps.
  [[nodiscard]] bool Done(int chunk) noexcept {
    const std::uint64_t bit = std::uint64_t{1} << chunk;
    const std::uint64_t before = state_.work.fetch_or(bit, std::memory_order_acq_rel);
    if (((before | bit) & all_) != all_) return false;
    state_.finished.store(finished_, std::memory_order_release);
    state_.work.store(0, std::memory_order_release);
    return true;
  }

  // Claims all that is free, so that nobody begins another chunk. True if no chunk is being
  // reduced: no thread will write any more. False also while the occurrence before has not quite
  // ended, or when this one has: see Finished(). Others may stop the same occurrence, before and
  // after.
  bool Stop() noexcept {
    for (int chunk = Claim(0); chunk != kNoChunk; chunk = Claim(0)) NoteStopped(chunk);
    const std::uint64_t word = state_.work.load(std::memory_order_acquire);
    if (!Owns(word)) return false;
    const std::uint64_t stopped = state_.stopped.load(std::memory_order_acquire);
    const std::uint64_t quiet = word | (Owns(stopped) ? stopped : 0);
    return (word >> kClaimShift & ~quiet & all_) == 0;
  }

 private:
  static constexpr int kClaimShift = 28;
  static constexpr int kTagShift = 56;

  static constexpr std::uint64_t Tag(std::uint64_t occurrence) noexcept {
    return (occurrence % 255 + 1) << kTagShift;
  }
  static constexpr std::uint64_t ClaimBit(int chunk) noexcept {
    return std::uint64_t{1} << (chunk + kClaimShift);
  }
  bool Owns(std::uint64_t word) const noexcept { return word >> kTagShift == tag_ >> kTagShift; }
  std::uint64_t Free(std::uint64_t word) const noexcept { return ~(word >> kClaimShift) & all_; }

  void NoteStopped(int chunk) noexcept {
    std::uint64_t word = state_.stopped.load(std::memory_order_relaxed);
    for (;;) {
      const std::uint64_t noted = (Owns(word) ? word : tag_) | std::uint64_t{1} << chunk;
      if (state_.stopped.compare_exchange_weak(word, noted, std::memory_order_acq_rel)) return;
    }
  }

  void TakeBack(int chunk) noexcept {
    std::uint64_t word = state_.work.load(std::memory_order_acquire);
    for (;;) {
      std::uint64_t without = word & ~ClaimBit(chunk);
      // Nobody else was misled: the word is free again.
      if ((without & ~(std::uint64_t{0xff} << kTagShift)) == 0) without = 0;
      if (state_.work.compare_exchange_weak(word, without, std::memory_order_acq_rel,
                                            std::memory_order_acquire)) {
        return;
      }
    }
  }

  SharedTensor& state_;
  const std::uint64_t finished_;
  const std::uint64_t tag_;
  const std::uint64_t all_;
};

}  // namespace ringd

#endif  // RINGD_PROTO_SHM_CHUNK_CLAIMS_H_
