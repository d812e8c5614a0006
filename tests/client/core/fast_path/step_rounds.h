// Rounds of submissions that a test plays to a StepTail.
#ifndef RINGD_TESTS_CLIENT_CORE_FAST_PATH_STEP_ROUNDS_H_
#define RINGD_TESTS_CLIENT_CORE_FAST_PATH_STEP_ROUNDS_H_

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "client/core/fast_path/step_tail.h"
#include "tests/client/core/fast_path/fast_path_job.h"

namespace ringd::client {

inline constexpr std::uint64_t kLimit = 8192;
inline constexpr std::uint64_t kLarge = StepTail::kLeastBefore;

// Tensors of uint8, so that elements are bytes.
class Tensors {
 public:
  Registration& Add(std::uint64_t bytes) {
    return Add(Reduction("t" + std::to_string(count_), DataType::kUint8, ReduceOp::kSum, bytes));
  }
  Registration& Add(const TensorDescription& description) {
    ++count_;
    return *registrations_.Find(registrations_.Add(description, {}, 0));
  }

 private:
  Registrations registrations_;
  int count_ = 0;
};

using Round = std::vector<Registration*>;

// What became of a round.
struct Seen {
  std::size_t held = 0;      // submissions that were to be held
  std::size_t released = 0;  // how often what was held had to be submitted
  bool whole = false;
  bool operator==(const Seen&) const = default;
};
inline std::ostream& operator<<(std::ostream& stream, const Seen& seen) {
  return stream << seen.held << " held, released " << seen.released << " times, "
                << (seen.whole ? "whole" : "not whole");
}
inline constexpr Seen kNothing{};
inline Seen Whole(std::size_t held) { return {held, 0, true}; }

// As TailOperations does.
inline Seen Play(StepTail& tail, const Round& round) {
  Seen seen;
  for (Registration* tensor : round) {
    if (tail.OnSubmit(*tensor)) {
      ++seen.held;
      continue;
    }
    if (tail.held() == 0) continue;
    tail.OnReleased();
    ++seen.released;
  }
  const std::size_t held = tail.held();
  seen.whole = tail.OnWait();
  if (held > 0 && !seen.whole) {
    tail.OnReleased();
    ++seen.released;
  }
  return seen;
}

}  // namespace ringd::client

#endif  // RINGD_TESTS_CLIENT_CORE_FAST_PATH_STEP_ROUNDS_H_
