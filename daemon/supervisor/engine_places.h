// Bounds of what engines, and all engines of a user, may have begun.
#ifndef RINGD_DAEMON_SUPERVISOR_ENGINE_PLACES_H_
#define RINGD_DAEMON_SUPERVISOR_ENGINE_PLACES_H_

#include <atomic>
#include <cstddef>
#include <memory>

namespace ringd {

// So many things at most that are under way: each holds a place until nothing of it is left, also
// if it was given up.
//
// Thread safety: any thread.
class EnginePlaces {
 public:
  using Place = std::shared_ptr<const void>;

  explicit EnginePlaces(std::size_t most) : most_(most) {}

  // Null: all are taken.
  Place Take() {
    // Relaxed: a number, by which nothing else is published.
    if (taken_->fetch_add(1, std::memory_order_relaxed) < most_) {
      return Place(taken_.get(), [taken = taken_](const void*) {
        taken->fetch_sub(1, std::memory_order_relaxed);
      });
    }
    taken_->fetch_sub(1, std::memory_order_relaxed);
    return nullptr;
  }

 private:
  const std::size_t most_;
  const std::shared_ptr<std::atomic<std::size_t>> taken_ =
      std::make_shared<std::atomic<std::size_t>>(0);  // places outlive this
};

// What all engines of one user have together: he may have many.
//
// Thread safety: any thread.
struct UserPlaces {
  static constexpr std::size_t kMostControls = 1024;  // as connections: ExpectedJobs
  static constexpr std::size_t kMostDials = 4096;     // of coordinators
  static constexpr std::size_t kMostWireDials = 16'384;

  EnginePlaces controls{kMostControls};
  EnginePlaces dials{kMostDials};
  EnginePlaces wire_dials{kMostWireDials};
  // Connections of wires that no engine has taken yet: OpenWires bounds them.
  const std::shared_ptr<std::atomic<std::size_t>> untaken =
      std::make_shared<std::atomic<std::size_t>>(0);
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_ENGINE_PLACES_H_
