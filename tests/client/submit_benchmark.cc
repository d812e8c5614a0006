// What the client's own part of an operation costs: submissions of an arena tensor into a ring
// whose other end is a thread of this program. Run by hand, pinned to two cores; prints nanoseconds
// per call.
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

#include "client/core/lanes/wire/ringd_operations.h"
#include "client/core/tensors/registrations.h"
#include "client/core/tensors/staging.h"
#include "proto/base/memfd.h"
#include "proto/base/memory_mapping.h"

namespace ringd::client {
namespace {

constexpr std::uint32_t kCapacity = 4096;
constexpr int kRounds = 400;

MemoryMapping Map(std::uint64_t bytes) {
  const auto fd = CreateSealedMemfd("benchmark", bytes);
  return *MemoryMapping::Map(fd->get(), bytes);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int Run() {
  const SessionSegmentLayout layout{kCapacity, 2 * kCapacity};
  MemoryMapping mapping = Map(layout.segment_bytes());
  InitializeSessionSegment(mapping.data(), layout, 1, 0);
  const SessionSegmentView view = ViewSessionSegment(mapping.data(), layout);
  RingConsumer<Submission> submissions(view.submission_cursors, view.submissions, kCapacity);
  RingProducer<CompletionRecord> completions(view.completion_cursors, view.completions,
                                             2 * kCapacity);
  SessionState state;
  Arena arena(Map(1 << 20));
  Registrations registrations;
  StagedCopies copies(view);
  Staging staging(arena, &copies);
  RingdOperations operations(view, kCapacity, 2 * kCapacity, UniqueFd(::eventfd(0, 0)), state,
                             copies, std::chrono::microseconds(1000));
  TensorDescription description;
  description.name = "benchmark";
  description.shape = {1024};
  description.element_count = 1024;
  const ringd_registration number = registrations.Add(description, {1}, 0);
  void* data = *arena.AllocateZeroed(4096);

  const auto submit = [&] {
    Submission record{};
    OperationEnd end;
    (void)staging.Place(*registrations.Find(number), data, data, record, end, {.in_pieces = true});
    if (operations.TrySubmit(record, end) != SubmitResult::kOk) std::abort();
    return record.sequence;
  };
  const auto finish = [&](std::uint64_t sequence) {
    OperationOutcome outcome;
    OperationEnd end;
    if (operations.Wait(sequence, Clock::time_point::max()) != WaitResult::kDone ||
        !operations.Consume(sequence, outcome, end)) {
      std::abort();
    }
    staging.Finish(end, true);
  };
  const auto complete_all = [&] {
    Submission seen;
    while (submissions.TryPop(seen) == RingResult::kOk) {
      CompletionRecord record{};
      record.sequence = seen.sequence;
      if (completions.TryPush(record) != RingResult::kOk) std::abort();
    }
  };

  // One thread plays both sides in turn, so that nothing but the calls themselves is measured.
  std::vector<double> submit_ns, wait_ns;
  std::vector<std::uint64_t> sequences(1000);
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t start = MonotonicNanos();
    for (auto& sequence : sequences) sequence = submit();
    submit_ns.push_back(static_cast<double>(MonotonicNanos() - start) / 1000);
    complete_all();
    const std::uint64_t middle = MonotonicNanos();
    for (const auto sequence : sequences) finish(sequence);
    wait_ns.push_back(static_cast<double>(MonotonicNanos() - middle) / 1000);
  }
  std::printf("submit %.1f ns, wait for what is done %.1f ns\n", Median(submit_ns),
              Median(wait_ns));

  std::atomic<bool> stop{false};
  std::thread engine([&] {
    while (!stop) {
      complete_all();
      view.header->completions.Ring();
    }
  });
  std::vector<double> round_trip_ns;
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t start = MonotonicNanos();
    finish(submit());
    round_trip_ns.push_back(static_cast<double>(MonotonicNanos() - start));
  }
  stop = true;
  engine.join();
  std::printf("round trip to a spinning engine, spinning: %.0f ns\n", Median(round_trip_ns));
  return 0;
}

}  // namespace
}  // namespace ringd::client

int main() { return ringd::client::Run(); }
