// Random numbers that are the same on every machine for a seed; the standard's distributions are
// not.
#ifndef RINGD_TESTS_SIMULATION_RANDOM_H_
#define RINGD_TESTS_SIMULATION_RANDOM_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace ringd::simulation {

// SplitMix64. Thread safety: none.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  // From low to high, both included.
  int Int(int low, int high) {
    return low + static_cast<int>(Next() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool Chance(int percent) { return Int(1, 100) <= percent; }
  std::chrono::nanoseconds Duration(std::chrono::nanoseconds low, std::chrono::nanoseconds high) {
    const auto span = static_cast<std::uint64_t>((high - low).count()) + 1;
    return low + std::chrono::nanoseconds(static_cast<std::int64_t>(Next() % span));
  }
  template <typename T>
  void Shuffle(std::vector<T>& items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[Next() % i]);
  }
  // A generator of its own, so that one part's draws do not shift another's.
  Random Fork() { return Random(Next()); }

 private:
  std::uint64_t state_;
};

}  // namespace ringd::simulation

#endif  // RINGD_TESTS_SIMULATION_RANDOM_H_
