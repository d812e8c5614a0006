#include "client/core/lanes/node/processor_watch.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string>

#include "absl/status/statusor.h"
#include "proto/base/read_file.h"

namespace ringd::client {
namespace {

constexpr std::string_view kSpaces = " \t";
// user, nice, system; then idle and iowait (proc_stat(5)).
constexpr int kFieldsBeforeIdle = 3;
// A line for each processor, and a number for each interrupt.
constexpr std::size_t kMostStatBytes = std::size_t{4} << 20;

// The number that `text` begins with, after spaces; taken off it.
std::optional<std::uint64_t> TakeNumber(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

}  // namespace

std::optional<IdleTicks> ReadIdleTicks(std::string_view stat, const cpu_set_t& processors) {
  constexpr std::string_view kPrefix = "cpu";
  IdleTicks found;
  while (!stat.empty()) {
    const std::size_t end = std::min(stat.find('\n'), stat.size());
    std::string_view line = stat.substr(0, end);
    stat.remove_prefix(std::min(end + 1, stat.size()));
    if (!line.starts_with(kPrefix)) break;
    line.remove_prefix(kPrefix.size());
    // The first line is the sum of all.
    if (line.empty() || kSpaces.find(line.front()) != std::string_view::npos) continue;
    const std::optional<std::uint64_t> processor = TakeNumber(line);
    if (!processor.has_value()) return std::nullopt;
    ++found.online;
    if (*processor >= CPU_SETSIZE || !CPU_ISSET(*processor, &processors)) continue;
    for (int field = 0; field < kFieldsBeforeIdle; ++field) {
      if (!TakeNumber(line).has_value()) return std::nullopt;
    }
    const std::optional<std::uint64_t> idle = TakeNumber(line);
    const std::optional<std::uint64_t> waits = TakeNumber(line);  // for a disk
    if (!idle.has_value() || !waits.has_value()) return std::nullopt;
    found.ticks += *idle + *waits;
    ++found.processors;
  }
  if (found.processors == 0) return std::nullopt;
  return found;
}

std::optional<ProcessorTimes> ReadProcessorTimes() {
  const Clock::time_point now = Clock::now();
  cpu_set_t processors;
  // Fails where there are more than CPU_SETSIZE of them.
  if (sched_getaffinity(0, sizeof(processors), &processors) != 0) return std::nullopt;
  timespec own{};
  if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &own) != 0) return std::nullopt;
  const absl::StatusOr<std::string> stat = ReadFile("/proc/stat", kMostStatBytes);
  if (!stat.ok()) return std::nullopt;
  const std::optional<IdleTicks> idle = ReadIdleTicks(*stat, processors);
  const std::int64_t ticks_per_second = sysconf(_SC_CLK_TCK);
  if (!idle.has_value() || ticks_per_second <= 0) return std::nullopt;
  return ProcessorTimes{
      .at = now,
      .idle = std::chrono::nanoseconds(static_cast<std::int64_t>(idle->ticks) *
                                       (std::nano::den / ticks_per_second)),
      .own = std::chrono::seconds(own.tv_sec) + std::chrono::nanoseconds(own.tv_nsec),
      .processors = idle->processors,
      .online = idle->online};
}

void ProcessorWatch::Begin(Clock::time_point now) {
  if (begin_.has_value() || now < next_) return;
  begin_ = read_();
  next_ = now + kInterval;
}

void ProcessorWatch::End() {
  if (!begin_.has_value()) return;
  const ProcessorTimes begin = *begin_;
  begin_.reset();
  const Clock::time_point before = Clock::now();
  const std::optional<ProcessorTimes> end = read_();
  const Clock::duration reading = Clock::now() - before;
  if (!end.has_value()) return;
  next_ = end->at + std::max<Clock::duration>(kInterval, reading * kReadingTimes);
  if (end->at - begin.at < kLeastPiece) return;
  const double helpers = std::max(1.0, helpers_ * end->processors / std::max(1U, end->online));
  const auto used = std::chrono::duration<double, std::nano>(end->own - begin.own) * helpers;
  measured_ += end->at - begin.at;
  const std::chrono::nanoseconds idle = end->idle - begin.idle;
  // More than is left idle besides may have been taken from the trainers.
  idle_ += idle + std::min(idle, std::chrono::duration_cast<std::chrono::nanoseconds>(used));
  if (measured_ < kEnough) return;
  const double idle_processors = std::chrono::duration<double>(idle_) / measured_;
  const double wanted = std::min<double>(helpers, end->processors);
  has_room_ = idle_processors >= (has_room_ ? kBusy : kIdle) * wanted;
  measured_ = idle_ = std::chrono::nanoseconds(0);
}

}  // namespace ringd::client
