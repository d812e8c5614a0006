// One setting's value: from text, to text, and what is allowed.
#include <cstdio>
#include <set>
#include <type_traits>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "daemon/config/fusion_setting.h"
#include "daemon/config/host_port.h"
#include "daemon/config/quantity.h"
#include "daemon/config/setting_table.h"
#include "proto/base/text.h"

namespace ringd {
namespace {

constexpr absl::string_view kAutoWord = "auto";
constexpr absl::string_view kTrueWords[] = {"true", "yes", "on", "1"};
constexpr absl::string_view kFalseWords[] = {"false", "no", "off", "0"};

absl::Status Refuse(const Setting& setting) {
  return absl::InvalidArgumentError(absl::StrCat("allowed: ", AllowedValues(setting)));
}

bool HasControlCharacter(absl::string_view text) {
  for (const char c : text) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) return true;
  }
  return false;
}

absl::StatusOr<std::uint64_t> ParseNumber(const Setting& setting, absl::string_view text) {
  std::uint64_t value = 0;
  if (setting.kind == SettingKind::kBytesOrAuto && text == kAutoWord) return kAutoBytes;
  if (setting.kind == SettingKind::kCountOrAuto && text == kAutoWord) return kAutoCount;
  if (setting.kind == SettingKind::kBytes || setting.kind == SettingKind::kBytesOrAuto) {
    absl::StatusOr<std::uint64_t> bytes = ParseBytes(text);
    if (!bytes.ok()) return setting.kind == SettingKind::kBytes ? bytes : Refuse(setting);
    value = *bytes;
  } else if (setting.kind == SettingKind::kMode) {
    const absl::string_view digits = absl::StripPrefix(text, "0o");
    if (digits.empty() || digits.size() > 5) return Refuse(setting);
    for (const char c : digits) {
      if (c < '0' || c > '7') return Refuse(setting);
      value = value * 8 + static_cast<std::uint64_t>(c - '0');
    }
  } else if (!absl::SimpleAtoi(text, &value)) {
    return Refuse(setting);
  }
  if (value < setting.minimum || value > setting.maximum) return Refuse(setting);
  if (setting.kind == SettingKind::kPowerOfTwo && (value & (value - 1)) != 0) {
    return Refuse(setting);
  }
  return value;
}

// For logs, lists and the messages between processes, all of them UTF-8.
absl::Status CheckCharacters(absl::string_view text) {
  if (HasControlCharacter(text)) return absl::InvalidArgumentError("it has a control character");
  if (!IsUtf8(text)) return absl::InvalidArgumentError("it is not UTF-8");
  return absl::OkStatus();
}

absl::Status CheckText(const Setting& setting, absl::string_view text) {
  if (absl::Status status = CheckCharacters(text); !status.ok()) return status;
  switch (setting.kind) {
    case SettingKind::kChoice:
      for (const absl::string_view choice : setting.choices) {
        if (text == choice) return absl::OkStatus();
      }
      return Refuse(setting);
    case SettingKind::kPath:
      return text.empty() || absl::StartsWith(text, "/") ? absl::OkStatus() : Refuse(setting);
    case SettingKind::kLibrary:
      return !absl::StrContains(text, '/') || absl::StartsWith(text, "/") ? absl::OkStatus()
                                                                          : Refuse(setting);
    case SettingKind::kAddress:
      return ParseHostPort(text).status();
    case SettingKind::kFusion:
      return ParseFusion(text).status();
    default:
      return absl::OkStatus();
  }
}

// An item that is there before, too; null if there is none.
const std::string* FindTwice(const std::vector<std::string>& items) {
  std::set<absl::string_view> seen;
  for (const std::string& item : items) {
    if (!seen.insert(item).second) return &item;
  }
  return nullptr;
}

bool IsAuto(const Setting& setting, std::uint64_t value) {
  return (setting.kind == SettingKind::kBytesOrAuto && value == kAutoBytes) ||
         (setting.kind == SettingKind::kCountOrAuto && value == kAutoCount);
}

std::string FormatNumber(const Setting& setting, std::uint64_t value) {
  if (IsAuto(setting, value)) return std::string(kAutoWord);
  if (setting.kind == SettingKind::kBytes || setting.kind == SettingKind::kBytesOrAuto) {
    return FormatBytes(value);
  }
  if (setting.kind == SettingKind::kMode) return absl::StrFormat("0o%03o", value);
  return absl::StrCat(value);
}

// A TOML basic string.
std::string Quote(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

template <typename... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};

}  // namespace

std::string AllowedValues(const Setting& setting) {
  const auto duration = [](std::uint64_t nanos) {
    return FormatDuration(std::chrono::nanoseconds(nanos));
  };
  switch (setting.kind) {
    case SettingKind::kText:
      return "text";
    case SettingKind::kChoice:
      return absl::StrCat("one of ", absl::StrJoin(setting.choices, ", "));
    case SettingKind::kList:
      return "a list of names, such as [\"a\", \"b\"] in the file and \"a,b\" elsewhere";
    case SettingKind::kOrder:
      return "a list of names, each once, such as [\"a\", \"b\"] in the file and \"a,b\" elsewhere";
    case SettingKind::kAddress:
      return "host:port";
    case SettingKind::kFusion:
      return std::string(kAllowedFusion);
    case SettingKind::kPath:
      return "an absolute path";
    case SettingKind::kLibrary:
      return "a library's name or an absolute path";
    case SettingKind::kSwitch:
      return "true or false";
    case SettingKind::kMode:
      return "permission bits in octal, such as \"0660\"";
    case SettingKind::kCount:
      return absl::StrCat("a whole number between ", setting.minimum, " and ", setting.maximum);
    case SettingKind::kCountOrAuto:
      return absl::StrCat("auto, or a whole number between ", setting.minimum, " and ",
                          setting.maximum);
    case SettingKind::kPowerOfTwo:
      return absl::StrCat("a power of two between ", setting.minimum, " and ", setting.maximum);
    case SettingKind::kBytes:
      return absl::StrCat("a size such as \"64MiB\", between ", FormatBytes(setting.minimum),
                          " and ", FormatBytes(setting.maximum));
    case SettingKind::kBytesOrAuto:
      return absl::StrCat("auto, or a size such as \"16KiB\", between ",
                          FormatBytes(setting.minimum), " and ", FormatBytes(setting.maximum));
    case SettingKind::kDuration:
      return absl::StrCat("a duration such as \"5s\", between ", duration(setting.minimum), " and ",
                          duration(setting.maximum));
  }
  return "";
}

absl::Status AssignSetting(const Setting& setting, absl::string_view text, Config& config) {
  text = absl::StripAsciiWhitespace(text);
  return std::visit(
      Overloaded{
          [&](std::string Config::*field) {
            const absl::Status status = CheckText(setting, text);
            if (status.ok()) config.*field = std::string(text);
            return status;
          },
          [&](std::vector<std::string> Config::*field) {
            if (absl::Status status = CheckCharacters(text); !status.ok()) return status;
            std::vector<std::string> items;
            for (const absl::string_view item : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
              items.emplace_back(absl::StripAsciiWhitespace(item));
            }
            if (setting.kind == SettingKind::kOrder) {
              if (const std::string* twice = FindTwice(items); twice != nullptr) {
                return absl::InvalidArgumentError(
                    absl::StrCat("'", *twice, "' is there twice; ", Refuse(setting).message()));
              }
            }
            config.*field = std::move(items);
            return absl::OkStatus();
          },
          [&](bool Config::*field) {
            const std::string word = absl::AsciiStrToLower(text);
            const bool is_true = absl::c_linear_search(kTrueWords, word);
            if (!is_true && !absl::c_linear_search(kFalseWords, word)) return Refuse(setting);
            config.*field = is_true;
            return absl::OkStatus();
          },
          [&](std::uint64_t Config::*field) {
            const absl::StatusOr<std::uint64_t> value = ParseNumber(setting, text);
            if (value.ok()) config.*field = *value;
            return value.ok() ? absl::OkStatus() : value.status();
          },
          [&](std::chrono::nanoseconds Config::*field) {
            const absl::StatusOr<std::chrono::nanoseconds> value = ParseDuration(text);
            if (!value.ok()) return value.status();
            const std::uint64_t nanos = static_cast<std::uint64_t>(value->count());
            if (nanos < setting.minimum || nanos > setting.maximum) return Refuse(setting);
            config.*field = *value;
            return absl::OkStatus();
          },
      },
      setting.field);
}

std::string SettingText(const Setting& setting, const Config& config) {
  return std::visit(
      Overloaded{
          [&](std::string Config::*field) { return config.*field; },
          [&](std::vector<std::string> Config::*field) {
            return absl::StrJoin(config.*field, ",");
          },
          [&](bool Config::*field) { return std::string(config.*field ? "true" : "false"); },
          [&](std::uint64_t Config::*field) { return FormatNumber(setting, config.*field); },
          [&](std::chrono::nanoseconds Config::*field) { return FormatDuration(config.*field); },
      },
      setting.field);
}

std::string FormatSetting(const Setting& setting, const Config& config) {
  const std::string text = SettingText(setting, config);
  return std::visit(
      Overloaded{
          [&](std::vector<std::string> Config::*field) {
            return absl::StrCat("[",
                                absl::StrJoin(config.*field, ", ",
                                              [](std::string* out, const std::string& item) {
                                                *out += Quote(item);
                                              }),
                                "]");
          },
          [&](bool Config::*) { return text; },
          [&](std::uint64_t Config::*field) {
            const bool is_text =
                IsAuto(setting, config.*field) || setting.kind == SettingKind::kBytes ||
                setting.kind == SettingKind::kBytesOrAuto || setting.kind == SettingKind::kMode;
            return is_text ? Quote(text) : text;
          },
          [&](auto) { return Quote(text); },
      },
      setting.field);
}

}  // namespace ringd
