#include "daemon/supervisor/engine_log_reader.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "daemon/logging/engine_log.h"
#include "daemon/logging/log.h"
#include "daemon/logging/log_line.h"
#include "proto/base/text.h"

namespace ringd {
namespace {

using WallClock = std::chrono::system_clock;

// A record waits in the socket for as long as we are held up, and no longer than that.
constexpr std::chrono::minutes kLongestWait{1};

WallClock::time_point Believed(WallClock::time_point time) {
  const WallClock::time_point now = WallClock::now();
  return time > now || time < now - kLongestWait ? now : time;
}

// As UCX, the sanitizers and glibc print frames: "#1 0x...", " 2  /lib/...", "/x.so(+0x1)[0x2]".
bool IsOfBacktrace(absl::string_view line) {
  const absl::string_view text = absl::StripLeadingAsciiWhitespace(line);
  const bool is_indented = text.size() < line.size();
  const auto is_digit = [](char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); };
  return (text.size() > 1 && text[0] == '#' && is_digit(text[1])) ||
         (is_indented && !text.empty() && is_digit(text[0])) ||
         (absl::StartsWith(text, "/") && absl::EndsWith(text, "]")) ||
         absl::StrContains(text, "= backtrace (");
}

bool HasLetter(absl::string_view line) {
  return std::any_of(line.begin(), line.end(),
                     [](char c) { return absl::ascii_isalpha(static_cast<unsigned char>(c)); });
}

}  // namespace

void EngineLogReader::Take(absl::string_view bytes, Clock::time_point now) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const absl::string_view part = bytes.substr(0, end);
    // What is too long is cut: the rest of it goes nowhere.
    partial_.append(part.data(), std::min(part.size(), kMaxEngineLogLine - partial_.size()));
    if (end == absl::string_view::npos) return;
    bytes.remove_prefix(end + 1);
    TakeLine(partial_, now);
    partial_.clear();
  }
}

void EngineLogReader::End(Clock::time_point now) {
  if (!partial_.empty()) TakeLine(partial_, now);
  partial_.clear();
  if (held_back_ > 0) TellHeldBack();
}

void EngineLogReader::TakeLine(absl::string_view line, Clock::time_point now) {
  if (line.empty()) return;
  std::optional<EngineRecord> record = ParseEngineRecord(line);
  if (!record.has_value()) {
    Remember(line);
  } else if (record->level >= LogLevel::kError) {
    Remember(record->message);
  }
  if (!limiter_.Pass(now).has_value() ||
      (of_user_ != nullptr && !of_user_->Pass(now).has_value())) {
    ++held_back_;
    return;
  }
  if (held_back_ > 0) TellHeldBack();
  if (record.has_value()) {
    record->fields.engine = engine_;
    const bool names_job = !record->fields.job.empty();
    if (names_job && !job_.empty()) record->fields.job = job_;  // whatever it says
    LogMadeAt(Believed(record->time), record->level, record->message, record->fields);
  } else {
    LogError(line, {.engine = engine_});
  }
}

void EngineLogReader::Remember(absl::string_view message) {
  if (!HasLetter(message) || IsOfBacktrace(message)) return;
  // It goes into messages of protobuf's, which have to be UTF-8.
  const std::string clean = CleanLine(EscapeControls(CutToLength(message, kMostShown)));
  last_line_ = std::string(CutToLength(clean, kMostShown));
}

void EngineLogReader::TellHeldBack() {
  LogWarning(
      absl::StrCat(held_back_, " lines of this engine are left out: it, or its user's ",
                   "engines together, write more than ", kLines, " in ", kPeriod.count(), " s"),
      {.engine = engine_});
  held_back_ = 0;
}

}  // namespace ringd
