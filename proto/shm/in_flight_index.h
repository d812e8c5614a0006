// Which tensors a member of a one-node job has in flight, a word for each: so that whoever looks on
// reads as much as is in flight, not as much as there is.
//
// A word is 0 while its place is free. Places are handed out from the lowest on and used again, so
// the words in use stand close together; SharedMember::in_flight_places says how many places have
// ever been used.
#ifndef RINGD_PROTO_SHM_IN_FLIGHT_INDEX_H_
#define RINGD_PROTO_SHM_IN_FLIGHT_INDEX_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "proto/shm/job_segment.h"

namespace ringd {

// A tensor of which a member has submitted something that has not ended there.
struct InFlightTensor {
  std::uint32_t tensor = 0;      // its number
  std::uint64_t occurrence = 0;  // the oldest that has not ended; the low 47 bits travel

  // Never 0.
  constexpr std::uint64_t ToWord() const noexcept {
    return occurrence << kTensorBits | (std::uint64_t{tensor} + 1);
  }
  // Requirement: the word is not 0. What a member wrote may name a tensor that does not exist.
  static constexpr InFlightTensor FromWord(std::uint64_t word) noexcept {
    constexpr std::uint64_t kTensorMask = (std::uint64_t{1} << kTensorBits) - 1;
    return {static_cast<std::uint32_t>((word & kTensorMask) - 1), word >> kTensorBits};
  }

  static constexpr int kTensorBits = 17;
  static_assert(kMaxLocalTensors < 1U << kTensorBits);
};

// The member's own hand in its words.
//
// Thread safety: none; the caller holds a lock. Those who look on read the words at any time.
// Ownership: borrows the segment's memory.
class InFlightIndex {
 public:
  static constexpr std::uint32_t kNoPlace = ~std::uint32_t{0};

  InFlightIndex(const JobSegmentView& segment, std::uint32_t member) noexcept
      : segment_(segment), member_(member) {}

  // The place of this tensor's word until End. Requirement: the tensor has none; so there is room.
  std::uint32_t Begin(const InFlightTensor& tensor) {
    if (free_.empty()) {
      free_.push_back(used_++);
      segment_.Member(member_).in_flight_places.store(used_, std::memory_order_release);
    }
    const std::uint32_t place = free_.back();
    free_.pop_back();
    Move(place, tensor);
    return place;
  }
  // Its oldest occurrence has ended, another is in flight.
  void Move(std::uint32_t place, const InFlightTensor& tensor) noexcept {
    segment_.InFlight(member_, place).store(tensor.ToWord(), std::memory_order_release);
  }
  // Does nothing for kNoPlace.
  void End(std::uint32_t place) {
    if (place >= used_) return;
    segment_.InFlight(member_, place).store(0, std::memory_order_release);
    free_.push_back(place);
  }

 private:
  const JobSegmentView segment_;
  const std::uint32_t member_;
  std::uint32_t used_ = 0;
  std::vector<std::uint32_t> free_;
};

}  // namespace ringd

#endif  // RINGD_PROTO_SHM_IN_FLIGHT_INDEX_H_
