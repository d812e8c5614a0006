// Who asks for a GPU, and who is to launch on it.
#ifndef RINGD_DAEMON_LANES_DEVICE_DEVICE_ASKER_H_
#define RINGD_DAEMON_LANES_DEVICE_DEVICE_ASKER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "proto/base/unique_fd.h"

namespace ringd {

// The setting device_launch.
enum class LaunchChoice : std::uint8_t {
  kAuto,     // the engine if both are under one MPS, else the trainer
  kEngine,   // always
  kTrainer,  // always
  kHost,     // nobody: tensors are copied to the host's memory and reduced there
};

// A trainer that asks for a GPU.
struct DeviceAsker {
  std::string name;         // "rank 1 (pid 4711)", for messages
  bool can_launch = false;  // its library can; older ones can't
  // Of the GPU in its process; nothing: it does not know.
  std::optional<bool> is_under_mps;
  // Hands it its end of a channel, by which it is told what to launch.
  std::function<void(const UniqueFd&)> hand_over;
  // In place of a slab: its tensors are to be reduced in the host's memory, since `why`; empty: it
  // was asked for. Null: its library is too old for that.
  std::function<void(const std::string& why)> go_by_host;
  bool wants_host_path = false;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_LANES_DEVICE_DEVICE_ASKER_H_
