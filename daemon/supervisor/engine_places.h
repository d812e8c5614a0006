// Bounds of what all engines of a user may have begun, and may take of ringd's memory.
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
  // Connections, dialled or let in, that were not sent to the engine yet: descriptors of ringd's.
  static constexpr std::size_t kMostUnsent = 4096;
  // What engines have told about their wires, as it lies in memory.
  static constexpr std::size_t kMostWireBytes = std::size_t{512} << 20;
  // Frames of engines, from their first bytes on until whoever asked has been answered.
  static constexpr std::size_t kMostFrameBytes = std::size_t{256} << 20;
  // Calls that engines have not taken.
  static constexpr std::size_t kMostCallBytes = std::size_t{256} << 20;

  CountedPlaces controls{kMostControls};
  CountedPlaces dials{kMostDials};
  CountedPlaces wire_dials{kMostWireDials};
  CountedPlaces obituaries{kMostObituaries};
  CountedPlaces unsent{kMostUnsent};
  CountedPlaces wire_bytes{kMostWireBytes};
  CountedPlaces frame_bytes{kMostFrameBytes};
  CountedPlaces call_bytes{kMostCallBytes};
  // Connections of wires that no engine has taken yet: OpenWires bounds them.
  const std::shared_ptr<std::atomic<std::size_t>> untaken =
      std::make_shared<std::atomic<std::size_t>>(0);
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_ENGINE_PLACES_H_
