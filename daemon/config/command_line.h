// What was asked for on ringd's command line.
#ifndef RINGD_DAEMON_CONFIG_COMMAND_LINE_H_
#define RINGD_DAEMON_CONFIG_COMMAND_LINE_H_

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/config/setting_source.h"

namespace ringd {

enum class CommandLineAction : std::uint8_t {
  kServe,
  kHelp,         // print CommandLine::help
  kVersion,      // print the version
  kCheckConfig,  // load the configuration, say whether it is good
  kPrintConfig,  // the same, and print all settings with their origins
  kProbeGpus,    // be a probe: daemon/gpu/gpu_probe.h
};

struct CommandLine {
  CommandLineAction action = CommandLineAction::kServe;
  std::string config_file;  // of --config; empty if not given
  std::string probed;       // of --probe-gpus: "cuda" or "nccl"
  WrittenSettings settings;
  std::string help;
};

//   kInvalidArgument: an unknown flag, or one without its value.
absl::StatusOr<CommandLine> ParseCommandLine(std::span<const char* const> arguments);

}  // namespace ringd

#endif  // RINGD_DAEMON_CONFIG_COMMAND_LINE_H_
