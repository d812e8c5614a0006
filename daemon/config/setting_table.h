// The one table of ringd's settings: drives the file, the environment, the flags, --help,
// --print-config and every check of a single value.
#ifndef RINGD_DAEMON_CONFIG_SETTING_TABLE_H_
#define RINGD_DAEMON_CONFIG_SETTING_TABLE_H_

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "daemon/config/config.h"

namespace ringd {

// How a setting's text is read.
enum class SettingKind : std::uint8_t {
  kText,
  kChoice,       // one of `choices`
  kList,         // texts, separated by commas
  kOrder,        // the same, none of them twice
  kAddress,      // host:port
  kFusion,       // learned, pinned, off or a size
  kPath,         // an absolute path or nothing
  kLibrary,      // a library's name, an absolute path or nothing
  kSwitch,       // true or false
  kCount,        // an integer
  kPowerOfTwo,   // an integer
  kMode,         // permission bits, octal
  kCountOrAuto,  // an integer, or "auto"
  kBytes,
  kBytesOrAuto,  // a size, or "auto"
  kDuration,
};

struct Setting {
  using Field =
      std::variant<std::string Config::*, std::vector<std::string> Config::*, bool Config::*,
                   std::uint64_t Config::*, std::chrono::nanoseconds Config::*>;

  // The key in the file. The variable is RINGD_<KEY>, the flag --<key> with '-' for '_'.
  absl::string_view key;
  SettingKind kind;
  Field field;
  absl::string_view help;
  // Bounds of numbers, sizes (bytes) and durations (ns), both included.
  std::uint64_t minimum = 0;
  std::uint64_t maximum = 0;
  std::vector<absl::string_view> choices = {};
  // The job's coordinator decides with its own ringd's setting, for all the job's nodes.
  bool job_wide = false;
  // SIGHUP takes it over from the file (reload.h).
  bool reloaded = false;
};

// In the order of --help.
std::span<const Setting> AllSettings();

// Null if there is no such setting.
const Setting* FindSetting(absl::string_view key);

// The setting that `key` was probably meant to be; null if none is near.
const Setting* SuggestSetting(absl::string_view key);

std::string VariableOf(const Setting& setting);  // "RINGD_LOG_LEVEL"
std::string FlagOf(const Setting& setting);      // "--log-level"

// "one of text, json", "a duration between 1ms and 24h".
std::string AllowedValues(const Setting& setting);

// Reads `text` into the setting's field.
//   kInvalidArgument: not allowed; `config` is unchanged. The message does not repeat key and text.
absl::Status AssignSetting(const Setting& setting, absl::string_view text, Config& config);

// The value as AssignSetting reads it.
std::string SettingText(const Setting& setting, const Config& config);

// The value as it would stand in the file, right of the '='.
std::string FormatSetting(const Setting& setting, const Config& config);

}  // namespace ringd

#endif  // RINGD_DAEMON_CONFIG_SETTING_TABLE_H_
