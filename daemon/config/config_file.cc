#include "daemon/config/config_file.h"

#include <toml++/toml.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/config/setting_table.h"
#include "proto/base/errno_status.h"

namespace ringd {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

std::string Location(const std::string& path, const toml::source_region& region) {
  return absl::StrCat(path, ":", region.begin.line);
}

absl::StatusOr<std::string> ListText(const toml::array& array) {
  std::string text;
  for (const toml::node& item : array) {
    const auto* value = item.as_string();
    if (value == nullptr || value->get().find(',') != std::string::npos) {
      return absl::InvalidArgumentError("a list holds strings without commas");
    }
    absl::StrAppend(&text, text.empty() ? "" : ",", value->get());
  }
  return text;
}

absl::StatusOr<std::string> ValueText(absl::string_view key, const toml::node& node) {
  if (const auto* value = node.as_string()) return value->get();
  if (const auto* value = node.as_boolean()) return std::string(value->get() ? "true" : "false");
  if (const auto* value = node.as_integer()) {
    const Setting* setting = FindSetting(key);
    if (setting == nullptr || setting->kind != SettingKind::kMode) {
      return absl::StrCat(value->get());
    }
    // 0o660 stands for bits, and the table reads bits in octal. 660 would be other bits.
    if (value->flags() != toml::value_flags::format_as_octal || value->get() < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("permission bits are in quotation marks, or octal: \"", value->get(),
                       "\" or 0o", value->get()));
    }
    return absl::StrFormat("%o", static_cast<std::uint64_t>(value->get()));
  }
  if (const auto* value = node.as_floating_point()) return absl::StrCat(value->get());
  if (const auto* value = node.as_array()) return ListText(*value);
  return absl::InvalidArgumentError(
      "the value must be a string, a number, true, false or a list of strings; there are no "
      "sections");
}

}  // namespace

absl::StatusOr<WrittenSettings> ReadConfigFile(const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  if (!file.is_open()) return ErrnoStatus(errno, absl::StrCat("configuration file ", path));
  std::ostringstream content;
  errno = 0;
  // An empty file sets failbit on the copy, as a failed read does; only errno tells.
  if (!(content << file.rdbuf()) && errno != 0) {
    return ErrnoStatus(errno, absl::StrCat("configuration file ", path));
  }
  const std::string text = content.str();
  const toml::parse_result result = toml::parse(text, path);
  if (!result) {
    const absl::string_view problem = View(result.error().description());
    // Such as 8GiB and 5s.
    const bool is_number = absl::StrContains(problem, "parsing decimal integer") ||
                           absl::StrContains(problem, "parsing floating-point");
    return absl::InvalidArgumentError(absl::StrCat(
        Location(path, result.error().source()), ": ", problem,
        is_number ? "; sizes and durations are in quotation marks: \"8GiB\", \"5s\"" : ""));
  }
  WrittenSettings settings;
  for (const auto& [key, node] : result.table()) {
    const absl::string_view name = View(key.str());
    // An unknown key is refused by the loader whatever its value, with a better message.
    absl::StatusOr<std::string> value = ValueText(name, node);
    if (!value.ok() && FindSetting(name) != nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(Location(path, key.source()), ": ", name, ": ", value.status().message()));
    }
    settings.push_back({std::string(name), value.ok() ? *std::move(value) : std::string(),
                        Location(path, key.source())});
  }
  return settings;
}

}  // namespace ringd
