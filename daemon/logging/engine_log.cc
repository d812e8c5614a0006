#include "daemon/logging/engine_log.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "daemon/logging/log_line.h"

namespace ringd {
namespace {

constexpr char kRecord = '\x1d';
constexpr char kSeparator = '\x1e';
constexpr absl::string_view kLevels = "TDIWE";  // LogLevel's
constexpr absl::string_view kCut = "...";
// The clock counts nanoseconds.
constexpr std::int64_t kMaxMicros = std::numeric_limits<std::int64_t>::max() / 1000;
constexpr std::size_t kMaxField = kMaxEngineLogLine / 4;

// Digits alone: SimpleAtoi would take blanks and signs. As LogFields has it, from 0 on.
template <typename Number>
bool ParseNumber(absl::string_view text, std::optional<Number>& number) {
  std::int64_t value = 0;
  if (number.has_value() || text.empty() || text.size() > 18 ||
      text.find_first_not_of("0123456789") != absl::string_view::npos ||
      !absl::SimpleAtoi(text, &value) ||
      value > static_cast<std::int64_t>(std::numeric_limits<Number>::max())) {
    return false;
  }
  number = static_cast<Number>(value);
  return true;
}

bool ParseField(absl::string_view text, LogFields& fields) {
  const std::size_t equals = text.find('=');
  if (equals == absl::string_view::npos) return false;
  const absl::string_view key = text.substr(0, equals);
  const absl::string_view value = text.substr(equals + 1);
  if (key == "rank") return ParseNumber(value, fields.rank);
  if (key == "communicator") return ParseNumber(value, fields.communicator);
  if (key == "generation") return ParseNumber(value, fields.generation);
  if (key != "job" || value.empty() || !fields.job.empty()) return false;
  fields.job = value;
  return true;
}

}  // namespace

std::string EncodeEngineRecord(std::chrono::system_clock::time_point time, LogLevel level,
                               absl::string_view payload) {
  const auto micros =
      std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
  const LogPayload line = UnpackLogPayload(payload);
  std::string fields;
  for (const auto& [key, value] : line.fields) {
    const std::string field = absl::StrCat("\x1e", key, "=", EscapeControls(value));
    if (fields.size() + field.size() <= 2 * kMaxField && field.size() <= kMaxField) fields += field;
  }
  std::string record = absl::StrCat(absl::string_view(&kRecord, 1),
                                    kLevels.substr(static_cast<std::size_t>(level), 1), micros,
                                    absl::string_view(&kSeparator, 1));
  // Escaped before it is cut; what is cut off is not worth the time.
  std::string message = EscapeControls(line.message.substr(0, kMaxEngineLogLine));
  const std::size_t room = kMaxEngineLogLine - record.size() - fields.size() - 1;
  if (message.size() > room) {
    message.resize(room - kCut.size());
    absl::StrAppend(&message, kCut);
  }
  absl::StrAppend(&record, message, fields, "\n");
  return record;
}

std::optional<EngineRecord> ParseEngineRecord(absl::string_view line) {
  if (line.size() < 2 || line[0] != kRecord) return std::nullopt;
  const std::size_t level = kLevels.find(line[1]);
  if (level == absl::string_view::npos) return std::nullopt;
  EngineRecord record;
  record.level = static_cast<LogLevel>(level);
  const std::vector<absl::string_view> parts = absl::StrSplit(line.substr(2), kSeparator);
  std::optional<std::int64_t> micros;
  if (parts.size() < 2 || !ParseNumber(parts[0], micros) || *micros > kMaxMicros) {
    return std::nullopt;
  }
  record.time = std::chrono::system_clock::time_point(std::chrono::microseconds(*micros));
  record.message = parts[1];
  for (std::size_t i = 2; i < parts.size(); ++i) {
    if (!ParseField(parts[i], record.fields)) return std::nullopt;
  }
  return record;
}

}  // namespace ringd
