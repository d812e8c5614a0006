#include "daemon/logging/log_line.h"

#include <ctime>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "proto/base/text.h"

namespace ringd {
namespace {

constexpr char kMarker = '\x1d';     // first byte of a payload with fields
constexpr char kSeparator = '\x1e';  // before each field: "rank=3"

// Control characters, and what is no UTF-8, as \xNN: a line stays a line, and gives the terminal
// that shows it no command.
void AppendEscaped(std::string& out, absl::string_view text) {
  while (!text.empty()) {
    const std::size_t bytes = BytesOfFirst(text);
    const absl::string_view character = text.substr(0, bytes == 0 ? 1 : bytes);
    if (bytes == 0 || IsControl(character)) {
      for (const char c : character) {
        absl::StrAppendFormat(&out, "\\x%02x", static_cast<unsigned char>(c));
      }
    } else {
      out.append(character.data(), character.size());
    }
    text.remove_prefix(character.size());
  }
}

std::string Timestamp(std::chrono::system_clock::time_point time) {
  const auto micros =
      std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
  const std::time_t seconds = static_cast<std::time_t>(micros / 1'000'000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return absl::StrFormat("%04d-%02d-%02dT%02d:%02d:%02d.%06dZ", utc.tm_year + 1900, utc.tm_mon + 1,
                         utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, micros % 1'000'000);
}

}  // namespace

LogPayload UnpackLogPayload(absl::string_view payload) {
  if (payload.empty() || payload.front() != kMarker) return {payload, {}};
  LogPayload result;
  bool first = true;
  for (const absl::string_view part : absl::StrSplit(payload.substr(1), kSeparator)) {
    if (first) {
      result.message = part;
    } else {
      const std::size_t equals = part.find('=');
      result.fields.emplace_back(part.substr(0, equals), part.substr(equals + 1));
    }
    first = false;
  }
  return result;
}

std::string EscapeControls(absl::string_view text) {
  std::string escaped;
  AppendEscaped(escaped, text);
  return escaped;
}

std::string PackLogPayload(absl::string_view message, const LogFields& fields) {
  std::string payload(1, kMarker);
  AppendEscaped(payload, message);
  const auto append = [&payload](absl::string_view key, absl::string_view value) {
    payload += kSeparator;
    absl::StrAppend(&payload, key, "=");
    AppendEscaped(payload, value);
  };
  if (!fields.job.empty()) append("job", fields.job);
  if (fields.rank.has_value()) append("rank", absl::StrCat(*fields.rank));
  if (fields.communicator.has_value()) append("communicator", absl::StrCat(*fields.communicator));
  if (fields.generation.has_value()) append("generation", absl::StrCat(*fields.generation));
  if (fields.engine.has_value()) append("engine", absl::StrCat(*fields.engine));
  return payload;
}

std::string FormatTextLine(std::chrono::system_clock::time_point time, absl::string_view level,
                           absl::string_view payload) {
  const LogPayload line = UnpackLogPayload(payload);
  std::string text = absl::StrFormat("%s %-7s ", Timestamp(time), level);
  AppendEscaped(text, line.message);
  for (const auto& [key, value] : line.fields) {
    absl::StrAppend(&text, " ", key, "=");
    // Quoted where a reader could not tell where the value ends.
    const bool quote = value.find_first_of(" =\"") != std::string::npos;
    if (quote) text += '"';
    AppendEscaped(text, absl::StrReplaceAll(value, {{"\"", "\\x22"}}));
    if (quote) text += '"';
  }
  return text;
}

std::string FormatJsonLine(std::chrono::system_clock::time_point time, absl::string_view level,
                           absl::string_view payload) {
  const LogPayload line = UnpackLogPayload(payload);
  nlohmann::ordered_json object;
  object["time"] = Timestamp(time);
  object["level"] = std::string(level);
  object["message"] = std::string(line.message);
  for (const auto& [key, value] : line.fields) {
    std::int64_t number = 0;
    const std::string name(key);
    // A job may be named "7"; its field is text all the same.
    if (name != "job" && absl::SimpleAtoi(value, &number)) {
      object[name] = number;
    } else {
      object[name] = std::string(value);
    }
  }
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace ringd
