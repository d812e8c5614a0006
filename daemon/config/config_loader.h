// Brings defaults, file, environment and flags together into one checked configuration.
#ifndef RINGD_DAEMON_CONFIG_CONFIG_LOADER_H_
#define RINGD_DAEMON_CONFIG_CONFIG_LOADER_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/config/command_line.h"
#include "daemon/config/config.h"

namespace ringd {

struct LoadedConfig {
  Config config;
  std::string file;                            // the file that was read; empty: none
  std::map<std::string, std::string> origins;  // key to origin; defaults are absent
  std::vector<std::string> warnings;
};

// What differs between a test and the real machine.
struct ConfigEnvironment {
  std::vector<std::string> variables;  // "NAME=value"
  std::string default_file;            // read if it exists and no other file is named
  std::uint64_t memory_bytes = 0;      // of this machine
};

// This process's.
ConfigEnvironment SystemConfigEnvironment();

// Later sources win: defaults, file (--config, RINGD_CONFIG or the default file), RINGD_<KEY>,
//   flags.
//   kInvalidArgument: unknown keys or values that are not allowed; a line for each, naming file and
//   line (or variable, or flag), key and what is allowed. kNotFound: a file that was named is
//   absent.
absl::StatusOr<LoadedConfig> LoadConfig(const CommandLine& line,
                                        const ConfigEnvironment& environment);

// All settings as a file with comments that tell where each comes from.
std::string PrintConfig(const LoadedConfig& loaded);

}  // namespace ringd

#endif  // RINGD_DAEMON_CONFIG_CONFIG_LOADER_H_
