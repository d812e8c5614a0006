// Whether a process's processors have time for its background helper.
#ifndef RINGD_CLIENT_CORE_LANES_NODE_PROCESSOR_WATCH_H_
#define RINGD_CLIENT_CORE_LANES_NODE_PROCESSOR_WATCH_H_

#include <sched.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "proto/base/clock.h"

namespace ringd::client {

// What the kernel counts; all grow.
struct ProcessorTimes {
  Clock::time_point at;
  std::chrono::nanoseconds idle;  // of all processors that the calling thread may use, together
  std::chrono::nanoseconds own;   // what the calling thread has used
  std::uint32_t processors;       // that it may use
  std::uint32_t online;
};

// /proc/stat's and the thread's own. Nothing if they can't be read. Takes some 20 µs, and more
// where there are many processors and interrupts.
std::optional<ProcessorTimes> ReadProcessorTimes();

struct IdleTicks {
  std::uint64_t ticks = 0;       // of _SC_CLK_TCK, of all that were asked for
  std::uint32_t processors = 0;  // of those, how many there are
  std::uint32_t online = 0;      // of any
};
// From /proc/stat. Nothing if none of them is there.
std::optional<IdleTicks> ReadIdleTicks(std::string_view stat, const cpu_set_t& processors);

// A helper on a processor that computes takes from the computing more than its own time: it empties
// the caches, too. A transformer of 9.5 M parameters, two ranks on two cores: 15 ms beyond
// computing with helpers, 8 without (AMD EPYC, 2026-11-26). So it only works where processors are
// idle while the trainers compute, which is measured between the first submission of a step and the
// wait: what is idle at other times, such as for want of data, is of no use to it.
//
// Limits: where a job is confined to few of the machine's processors, the helpers' share of them is
// taken for smaller than it is; and a quota of processor time (cpu.max) is not seen.
//
// Thread safety: none; the helper's thread has it.
class ProcessorWatch {
 public:
  using Read = std::function<std::optional<ProcessorTimes>()>;

  // From the end of one measurement to the begin of the next, and so many times what reading takes.
  static constexpr std::chrono::milliseconds kInterval{250};
  static constexpr int kReadingTimes = 500;
  // The kernel's ticks are 10 ms: a verdict takes so much time measured, in pieces of kLeastPiece
  // at least.
  static constexpr std::chrono::milliseconds kEnough{100};
  static constexpr std::chrono::milliseconds kLeastPiece{10};
  // Processors' idle time, and what helpers use as far as that is no more, for each helper, or for
  // each processor if they are fewer: from here on it works, and below the other it does not.
  static constexpr double kIdle = 0.5;
  static constexpr double kBusy = 0.3;

  // `helpers`: how many processes of the job have one, on all processors of this machine. Of those
  // that this process may use it has its share.
  ProcessorWatch(std::uint32_t helpers, Read read) : helpers_(helpers), read_(std::move(read)) {}

  // True at first, and where nothing can be read.
  bool has_room() const noexcept { return has_room_; }
  bool measures() const noexcept { return begin_.has_value(); }

  // The trainers compute from here on. No effect while it measures already, or has lately.
  void Begin(Clock::time_point now);
  // Until now.
  void End();

 private:
  const double helpers_;
  const Read read_;
  bool has_room_ = true;
  std::optional<ProcessorTimes> begin_;
  Clock::time_point next_;
  std::chrono::nanoseconds measured_{0};  // since the last verdict
  std::chrono::nanoseconds idle_{0};      // in that time, with what the helpers used
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_LANES_NODE_PROCESSOR_WATCH_H_
