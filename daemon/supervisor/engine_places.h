// Bounds of what all engines of a user may have begun.
#ifndef RINGD_DAEMON_SUPERVISOR_ENGINE_PLACES_H_
#define RINGD_DAEMON_SUPERVISOR_ENGINE_PLACES_H_

#include <atomic>
#include <cstddef>
#include <memory>

#include "proto/base/counted_places.h"

namespace ringd {

// What all engines of one user have together: he may have many.
//
// Thread safety: any thread.
struct UserPlaces {
  static constexpr std::size_t kMostControls = 1024;  // as connections: ExpectedJobs
  static constexpr std::size_t kMostDials = 4096;     // of coordinators
  static constexpr std::size_t kMostWireDials = 16'384;
  // That are being said. He can hold each up, for as long as he likes.
  static constexpr std::size_t kMostObituaries = 32;

  CountedPlaces controls{kMostControls};
  CountedPlaces dials{kMostDials};
  CountedPlaces wire_dials{kMostWireDials};
  CountedPlaces obituaries{kMostObituaries};
  // Connections of wires that no engine has taken yet: OpenWires bounds them.
  const std::shared_ptr<std::atomic<std::size_t>> untaken =
      std::make_shared<std::atomic<std::size_t>>(0);
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_ENGINE_PLACES_H_
