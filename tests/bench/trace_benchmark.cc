// What one trace event costs who writes it.
//
//   trace_benchmark [--limit-ns N]    exits with 1 if an event with its clock takes longer
//
// The best of many rounds counts, because the machine's other users only ever slow one down. The
// ring is as large as a trainer's, so that what its lines cost the caches is in the figure.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "proto/base/clock.h"
#include "proto/shm/session_segment.h"
#include "proto/trace/trace_clock.h"
#include "proto/trace/trace_ring.h"

namespace ringd {
namespace {

constexpr int kRounds = 200;
constexpr int kEventsARound = 20'000;

// Nanoseconds for each call of `work`, at best.
template <typename Work>
double Measure(Work work) {
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t begin = MonotonicNanos();
    for (int i = 0; i < kEventsARound; ++i) work(static_cast<std::uint32_t>(i));
    const auto taken = static_cast<double>(MonotonicNanos() - begin);
    best = std::min(best, taken / kEventsARound);
  }
  return best;
}

int Main(double limit_ns) {
  const auto memory = std::make_unique<std::byte[]>(TraceRingBytes(kTrainerTraceEvents) + 64);
  void* base = memory.get();
  std::size_t space = TraceRingBytes(kTrainerTraceEvents) + 64;
  std::align(kCacheLineBytes, TraceRingBytes(kTrainerTraceEvents), base, space);
  TraceWriter writer(ViewTraceRing(static_cast<std::byte*>(base), kTrainerTraceEvents));
  std::uint64_t sum = 0;
  TraceClock trace_clock;
  const double clock = Measure([&](std::uint32_t) { sum += trace_clock.Now(); });
  const auto write = [&](std::uint32_t number, std::uint64_t at_ns) {
    TraceEvent event;
    event.at_ns = at_ns;
    event.sequence = number;
    event.stage = TraceStage::kSubmitted;
    writer.Write(event);
  };
  const double alone = Measure([&](std::uint32_t number) { write(number, number); });
  const double whole = Measure([&](std::uint32_t number) { write(number, trace_clock.Now()); });
  std::printf("clock        %6.1f ns\nevent        %6.1f ns\nboth         %6.1f ns\n", clock, alone,
              whole);
  if (sum == 0 || whole <= limit_ns) return 0;
  std::fprintf(stderr, "an event takes more than %.0f ns\n", limit_ns);
  return 1;
}

}  // namespace
}  // namespace ringd

int main(int argc, char** argv) {
  const bool limited = argc == 3 && std::strcmp(argv[1], "--limit-ns") == 0;
  return ringd::Main(limited ? std::atof(argv[2]) : 1e9);
}
