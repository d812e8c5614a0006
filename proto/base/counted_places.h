// A bound on what is under way at once.
#ifndef RINGD_PROTO_BASE_COUNTED_PLACES_H_
#define RINGD_PROTO_BASE_COUNTED_PLACES_H_

#include <atomic>
#include <cstddef>
#include <memory>

namespace ringd {

// So much at most that is under way: each thing holds its place until nothing of it is left, also
// if it was given up.
//
// Thread safety: any thread.
// Ownership: places may outlive it.
class CountedPlaces {
 public:
  // Given back when the last copy goes; null: there is none.
  using Place = std::shared_ptr<const void>;

  explicit CountedPlaces(std::size_t most) noexcept : most_(most) {}

  std::size_t most() const noexcept { return most_; }

  // Null: all are taken. An amount of 0 always has a place, and any amount has one by itself.
  Place Take(std::size_t amount = 1) {
    // Relaxed: a number, by which nothing else is published.
    std::size_t before = taken_->load(std::memory_order_relaxed);
    do {
      const bool fits = before <= most_ && amount <= most_ - before;
      if (amount > 0 && before > 0 && !fits) return nullptr;
    } while (!taken_->compare_exchange_weak(before, before + amount, std::memory_order_relaxed));
    return Place(taken_.get(), [taken = taken_, amount](const void*) {
      taken->fetch_sub(amount, std::memory_order_relaxed);
    });
  }

 private:
  const std::size_t most_;
  const std::shared_ptr<std::atomic<std::size_t>> taken_ =
      std::make_shared<std::atomic<std::size_t>>(0);
};

}  // namespace ringd

#endif  // RINGD_PROTO_BASE_COUNTED_PLACES_H_
