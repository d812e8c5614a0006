// What an engine and a trainer that launches for it say to each other, as messages and as what they
// mean.
#ifndef RINGD_BACKENDS_DEVICE_LAUNCH_MESSAGE_H_
#define RINGD_BACKENDS_DEVICE_LAUNCH_MESSAGE_H_

#include <cstddef>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/device/device_bucket.h"
#include "backends/device/device_event.h"
#include "backends/device/device_launcher.h"
#include "proto/base/clock.h"
#include "proto/rpc/device_launch.pb.h"

namespace ringd {

// What one side has of the other in memory at most; and what waits for it to be read.
inline constexpr std::size_t kMostLaunchFrameBytes = std::size_t{64} << 20;
inline constexpr std::size_t kMostQueuedCommandBytes = std::size_t{96} << 20;
inline constexpr std::size_t kMostLaunchEventBytes = std::size_t{128} << 10;
inline constexpr std::size_t kMostQueuedEventBytes = std::size_t{16} << 20;

// Deadlines travel as what is left of them at `now`.
void WriteBucket(const DeviceBucket& bucket, Clock::time_point now, v1::LaunchBucket* out);
// kInvalidArgument: no such type, operator or divisor. Offsets and slots may be anything.
absl::StatusOr<DeviceBucket> ReadBucket(const v1::LaunchBucket& message, Clock::time_point now);

// Calls what `command` asks for, but `open`.
//   kInvalidArgument: it makes no sense, and nothing was called.
absl::Status Carry(const v1::LaunchCommand& command, Clock::time_point now,
                   DeviceLauncher& launcher);

// Nothing for an event that the other side has no use for. Texts are cut to some KiB, and a slab's
// descriptor stays here.
std::optional<v1::LaunchEvent> WriteEvent(const DeviceEvent& event);
// Any bytes may have come. kInvalidArgument: it is no event, or LaunchStep.
absl::StatusOr<DeviceEvent> ReadEvent(const v1::LaunchEvent& message);

}  // namespace ringd

#endif  // RINGD_BACKENDS_DEVICE_LAUNCH_MESSAGE_H_
