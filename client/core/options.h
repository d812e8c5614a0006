// What a context is opened with: the caller's options, filled up from the environment.
#ifndef RINGD_CLIENT_CORE_OPTIONS_H_
#define RINGD_CLIENT_CORE_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "client/core/attach/control_channel.h"
#include "client/core/attach/launcher_environment.h"
#include "client/core/tensors/direct_reads.h"
#include "client/ringd.h"

namespace ringd::client {

// Whether a one-node job's tensors are combined while nobody waits for them.
enum class BackgroundUse : std::uint8_t { kNever, kWhereIdle, kAlways };

struct Options {
  std::string socket;
  // Nobody has said that there are others, or a ringd: without one this rank works alone.
  bool may_be_alone = false;
  // For an error that there is no ringd: NoRingdAdvice.
  std::string no_ringd_advice;
  JoinParameters join;
  // To be told when the context opens; empty: nothing.
  std::string start_warning;
  // RINGD_SPIN_US: how long waits spin before they sleep.
  std::optional<std::chrono::nanoseconds> spin;
  // RINGD_BACKGROUND.
  BackgroundUse background = BackgroundUse::kWhereIdle;
  // RINGD_DIRECT_READ.
  DirectReading direct_reading = DirectReading::kIfAllowed;
  // RINGD_CUDA_LIBRARY: the driver, as for dlopen.
  std::string cuda_library;
  // RINGD_NCCL_LIBRARY: likewise, where this process launches; empty: ringd's setting.
  std::string nccl_library;
  // RINGD_HOST_PATH: tensors on the GPU are reduced in the host's memory.
  bool wants_host_path = false;
  std::function<void(const std::string& text)> on_warning;
  InterruptCheck is_interrupted;
};

// `given` may be null. The order of precedence, field by field: the caller, RINGD_ variables, the
// launcher's variables, defaults.
//   kInvalidArgument: a value makes no sense; the message names the option or variable.
absl::StatusOr<Options> ResolveOptions(const ringd_options* given, const GetEnvironment& get);

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_OPTIONS_H_
