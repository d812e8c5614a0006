// Reads the configuration file's assignments.
#ifndef RINGD_DAEMON_CONFIG_CONFIG_FILE_H_
#define RINGD_DAEMON_CONFIG_CONFIG_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "daemon/config/setting_source.h"

namespace ringd {

inline constexpr char kDefaultConfigFile[] = "/etc/ringd/ringd.toml";

// A TOML file with one table: keys of the setting table with strings, numbers, booleans or arrays
// of strings.
//   kNotFound, kPermissionDenied: the file can't be opened.
//   kInvalidArgument: no TOML, or a value of a form that no setting has; names file and line.
absl::StatusOr<WrittenSettings> ReadConfigFile(const std::string& path);

}  // namespace ringd

#endif  // RINGD_DAEMON_CONFIG_CONFIG_FILE_H_
