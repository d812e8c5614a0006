// The ranks of a one-node job, as threads of the test. Runs under ThreadSanitizer too.
#include "client/core/lanes/node/local_operations.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "client/core/lanes/node/background_helper.h"
#include "tests/client/core/lanes/node/local_job.h"

namespace ringd::client {
namespace {

TEST_CASE("LocalOperations: sums of every size come out at every rank") {
  const std::uint64_t count = GENERATE(0, 1, 8, 9, 200, 5000, 100'000, 1'000'000);
  LocalJob job(3);
  Floats tensors[] = {{0, 0, count}, {0, 0, count}, {0, 0, count}};
  std::vector<std::uint64_t> sequences;
  for (std::size_t m = 0; m < 3; ++m) {
    float* const data = job[m].At(64 * m);
    for (std::uint64_t i = 0; i < count; ++i) data[i] = static_cast<float>(m + 1 + i % 7);
    sequences.push_back(Submit(job[m], tensors[m].registration, data));
  }
  for (std::size_t m = 0; m < 3; ++m) CHECK(Finish(job[m], sequences[m]).status == 0);
  std::uint64_t wrong = 0;
  for (std::size_t m = 0; m < 3; ++m) {
    for (std::uint64_t i = 0; i < count; ++i) {
      const float expected = 6.0F + 3.0F * static_cast<float>(i % 7);
      wrong += job[m].At(64 * m)[i] != expected ? 1 : 0;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("LocalOperations: averages, prescales and broadcasts mean what they say") {
  const std::uint64_t count = GENERATE(4, 3000);
  LocalJob job(2);
  Floats mean(0, 0, count);
  mean.registration.description.op = ReduceOp::kAverage;
  mean.registration.description.prescale = 4.0;
  mean.registration.description.postscale = 0.5;
  Floats weights(1, 1, count);
  weights.registration.description.kind = CollectiveKind::kBroadcast;
  weights.registration.description.root_rank = 11;
  for (std::size_t m = 0; m < 2; ++m) {
    std::fill_n(job[m].At(0), count, static_cast<float>(m + 1));
    std::fill_n(job[m].At(1 << 20), count, static_cast<float>(m + 7));
  }
  std::vector<std::uint64_t> sequences;
  for (std::size_t m = 0; m < 2; ++m) {
    sequences.push_back(Submit(job[m], mean.registration, job[m].At(0)));
    weights.registration.sends = m == 1;
    weights.registration.receives = m == 0;
    sequences.push_back(Submit(job[m], weights.registration, job[m].At(1 << 20)));
  }
  for (std::size_t i = 0; i < 4; ++i) CHECK(Finish(job[i / 2], sequences[i]).status == 0);
  for (std::size_t m = 0; m < 2; ++m) {
    CHECK(job[m].At(0)[count - 1] == 3.0F);  // 4 * (1 + 2) / 2 * 0.5
    CHECK(job[m].At(1 << 20)[count - 1] == 8.0F);
  }
}

TEST_CASE(
    "LocalOperations: who is the root is known beforehand, whatever is written into the segment") {
  const std::uint64_t count = GENERATE(4, 3000);
  LocalJob job(2);
  Floats weights(0, 0, count);
  weights.registration.description.kind = CollectiveKind::kBroadcast;
  weights.registration.description.root_rank = 11;
  for (std::size_t m = 0; m < 2; ++m) {
    std::fill_n(job[m].At(0), count, static_cast<float>(m + 7));
    job[0].memory.segment().Member(m).rank = -5;
  }
  weights.registration.sends = false;
  const std::uint64_t first = Submit(job[0], weights.registration, job[0].At(0));
  weights.registration.sends = true;
  weights.registration.receives = false;
  const std::uint64_t second = Submit(job[1], weights.registration, job[1].At(0));
  CHECK(Finish(job[0], first).status == 0);
  CHECK(Finish(job[1], second).status == 0);
  CHECK(job[0].At(0)[count - 1] == 8.0F);
  CHECK(job[1].At(0)[count - 1] == 8.0F);
}

TEST_CASE("LocalOperations: what is in flight can be seen, and with its end it goes") {
  LocalJob job(2);
  const JobSegmentView& segment = job[0].memory.segment();
  const auto words = [&](std::size_t member) {
    std::vector<std::uint64_t> found;
    for (std::uint32_t p = 0; p < segment.Member(member).in_flight_places; ++p) {
      if (segment.InFlight(member, p) != 0) found.push_back(segment.InFlight(member, p));
    }
    return found;
  };
  const auto word = [](std::uint32_t tensor, std::uint64_t occurrence) {
    return InFlightTensor{tensor, occurrence}.ToWord();
  };
  Floats small(3, 0, 4);
  Floats large(500, 1, 3000);
  std::vector<std::uint64_t> first = {Submit(job[0], small.registration, job[0].At(0)),
                                      Submit(job[0], large.registration, job[0].At(4096)),
                                      Submit(job[0], small.registration, job[0].At(64))};
  CHECK(words(0) == std::vector{word(3, 0), word(500, 0)});
  CHECK(words(1).empty());
  const std::uint64_t second = Submit(job[1], small.registration, job[1].At(0));
  Finish(job[0], first[0]);
  Finish(job[1], second);
  CHECK(words(0) == std::vector{word(3, 1), word(500, 0)});
  CHECK(words(1).empty());
  std::vector<std::uint64_t> rest = {Submit(job[1], large.registration, job[1].At(4096)),
                                     Submit(job[1], small.registration, job[1].At(64))};
  Finish(job[0], first[1]);
  Finish(job[0], first[2]);
  for (const std::uint64_t sequence : rest) Finish(job[1], sequence);
  CHECK(words(0).empty());
  CHECK(words(1).empty());
  CHECK(segment.Member(0).in_flight_places == 2);
}

TEST_CASE("LocalOperations: a broadcast's root may have its values in another place, too") {
  LocalJob job(2);
  Floats value(0, 0, 1);
  value.registration.description.kind = CollectiveKind::kBroadcast;
  value.registration.description.root_rank = 10;
  const float source = 5;
  float root = 0;
  float other = 0;
  value.registration.receives = false;
  std::uint64_t first = 0;
  REQUIRE(job[0].operations->SubmitInline(value.registration, &source, &root, first) ==
          SubmitResult::kOk);
  value.registration.sends = false;
  value.registration.receives = true;
  const std::uint64_t second = Submit(job[1], value.registration, &other);
  Finish(job[0], first);
  Finish(job[1], second);
  CHECK(root == 5);
  CHECK(other == 5);
}

TEST_CASE("LocalOperations: whoever waits does the work, also for a rank that only submitted") {
  LocalJob job(2);
  Floats tensor(0, 0, 500'000);
  for (std::size_t m = 0; m < 2; ++m) std::fill_n(job[m].At(0), 500'000, 1.0F);
  const std::uint64_t first = Submit(job[0], tensor.registration, job[0].At(0));
  const std::uint64_t second = Submit(job[1], tensor.registration, job[1].At(0));
  Finish(job[0], first);
  // The other rank's result is there, although it has not been in any call since.
  CHECK(job[1].At(0)[499'999] == 2.0F);
  Finish(job[1], second);
}

TEST_CASE(
    "LocalOperations: descriptions that differ end the occurrence, and the next one is well") {
  LocalJob job(2);
  Floats small(0, 0, 4);
  Floats large(0, 1, 50'000);
  const std::uint64_t first = Submit(job[0], small.registration, job[0].At(0));
  const std::uint64_t second = Submit(job[1], large.registration, job[1].At(0));
  for (const auto& [member, sequence] : {std::pair(0, first), std::pair(1, second)}) {
    const OperationOutcome outcome = Finish(job[static_cast<std::size_t>(member)], sequence);
    CHECK(outcome.status == static_cast<int>(absl::StatusCode::kInvalidArgument));
    CHECK(outcome.conflicting_metas == std::vector<std::uint32_t>{0, 1});
  }
  for (std::size_t m = 0; m < 2; ++m) std::fill_n(job[m].At(0), 50'000, 2.0F);
  const std::uint64_t third = Submit(job[0], large.registration, job[0].At(0));
  const std::uint64_t fourth = Submit(job[1], large.registration, job[1].At(0));
  CHECK(Finish(job[0], third).status == 0);
  CHECK(Finish(job[1], fourth).status == 0);
  CHECK(job[0].At(0)[7] == 4.0F);
}

TEST_CASE("LocalOperations: one name may be in flight several times, and then waits for room") {
  LocalJob job(2);
  Floats tensor(0, 0, 1);
  float data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<std::uint64_t> sequences;
  for (std::size_t i = 0; i < kOccurrencesInFlight; ++i) {
    sequences.push_back(Submit(job[0], tensor.registration, &data[i]));
  }
  std::uint64_t none = 0;
  CHECK(job[0].operations->SubmitInline(tensor.registration, data, data, none) ==
        SubmitResult::kFull);
  float other[4] = {10, 20, 30, 40};
  std::vector<std::uint64_t> others;
  for (float& value : other) others.push_back(Submit(job[1], tensor.registration, &value));
  for (const std::uint64_t sequence : others) Finish(job[1], sequence);
  OperationEnd end;
  end.registration = &tensor.registration;
  CHECK(job[0].operations->WaitForRoom(end, Clock::time_point::max()));
  sequences.push_back(Submit(job[0], tensor.registration, &data[4]));
  // In any order of waiting.
  for (const std::size_t i : {3, 0, 2, 1}) Finish(job[0], sequences[i]);
  CHECK(data[0] == 11.0F);
  CHECK(data[3] == 44.0F);
}

TEST_CASE(
    "LocalOperations: a full table takes more once any has ended, though the oldest has not") {
  LocalJob job(2);
  std::vector<std::unique_ptr<Floats>> tensors;
  std::vector<float> here(kCapacity + 1, 1);
  std::vector<float> there(kCapacity + 1, 2);
  std::vector<std::uint64_t> others;
  for (std::uint32_t i = 0; i <= kCapacity; ++i) {
    tensors.push_back(std::make_unique<Floats>(i, i, 1));
    if (i < kCapacity) Submit(job[0], tensors[i]->registration, &here[i]);
    // The other rank comes to the first one only when it has the results of all others.
    if (i > 0) others.push_back(Submit(job[1], tensors[i]->registration, &there[i]));
    if (others.size() == kCapacity) break;
  }
  Registration& last = tensors.back()->registration;
  std::uint64_t sequence = 0;
  const auto submit = [&] {
    return job[0].operations->SubmitInline(last, &here.back(), &here.back(), sequence);
  };
  REQUIRE(submit() == SubmitResult::kFull);
  OperationEnd end;
  end.registration = &last;
  CHECK(job[0].operations->WaitForRoom(end, InTenSeconds()));
  REQUIRE(submit() == SubmitResult::kOk);
  for (const std::uint64_t other : others) CHECK(Finish(job[1], other).status == 0);
}

TEST_CASE(
    "LocalOperations: a rank whose tensor lies outside its arena ends the context, not the "
    "process") {
  LocalJob job(2);
  Floats tensor(0, 0, 5000);
  Submit(job[0], tensor.registration, job[0].At(0));
  const std::uint64_t sequence = Submit(job[1], tensor.registration, job[1].At(0));
  // What a hostile member can do: write into its own slot after all.
  job[0].memory.segment().Slot(0, 0, 0).destination_offset = kArenaBytes - 4;
  CHECK(job[1].operations->Wait(sequence, InTenSeconds()) == WaitResult::kEnded);
  CHECK(std::string(job[1].state.status().message()).find("rank 10") != std::string::npos);
}

TEST_CASE("LocalOperations: ranks that race through many tensors get every sum right") {
  const auto spin = GENERATE(std::chrono::microseconds(0), std::chrono::microseconds(50));
  constexpr std::uint32_t kMembers = 3;
  constexpr int kSteps = 60;
  const std::vector<std::uint64_t> counts = {1, 7, 8, 9, 300, 4096, 20'000, 3, 70'000, 1000};
  const bool in_background = GENERATE(false, true);
  LocalJob job(kMembers, spin);
  std::vector<std::unique_ptr<BackgroundHelper>> helpers;
  for (std::uint32_t m = 0; in_background && m < kMembers; ++m) {
    helpers.push_back(std::make_unique<BackgroundHelper>(*job[m].operations, AlwaysRoom()));
    REQUIRE(helpers.back()->Start().ok());
  }
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::uint32_t m = 0; m < kMembers; ++m) {
    threads.emplace_back([&, m] {
      std::mt19937 random(m);
      Member& member = job[m];
      std::vector<std::unique_ptr<Floats>> tensors;
      for (std::uint32_t t = 0; t < counts.size(); ++t) {
        tensors.push_back(std::make_unique<Floats>(t, t, counts[t]));
      }
      std::vector<std::size_t> order(counts.size());
      for (std::size_t t = 0; t < order.size(); ++t) order[t] = t;
      for (int step = 0; step < kSteps; ++step) {
        std::shuffle(order.begin(), order.end(), random);
        std::vector<std::pair<std::size_t, std::uint64_t>> submitted;
        for (const std::size_t t : order) {
          float* const data = member.At(t << 19);
          for (std::uint64_t i = 0; i < counts[t]; ++i) {
            data[i] = static_cast<float>(step + static_cast<int>(m) + static_cast<int>(i % 5));
          }
          std::uint64_t sequence = 0;
          Registration& registration = tensors[t]->registration;
          Submission record{};
          record.source_offset = record.destination_offset = t << 19;
          OperationEnd end;
          end.registration = &registration;
          const bool is_inline = LocalOperations::IsInline(registration);
          const SubmitResult result =
              is_inline ? member.operations->SubmitInline(registration, data, data, sequence)
                        : member.operations->TrySubmit(record, end);
          if (result != SubmitResult::kOk) ++wrong;
          submitted.emplace_back(t, is_inline ? sequence : record.sequence);
        }
        if (in_background) std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
        std::shuffle(submitted.begin(), submitted.end(), random);
        for (const auto& [t, sequence] : submitted) {
          OperationOutcome outcome;
          OperationEnd end;
          if (member.operations->Wait(sequence, InTenSeconds()) != WaitResult::kDone ||
              !member.operations->Consume(sequence, outcome, end) || outcome.status != 0) {
            ++wrong;
          }
          const float* const data = member.At(t << 19);
          for (std::uint64_t i = 0; i < counts[t]; ++i) {
            const int expected = kMembers * (step + static_cast<int>(i % 5)) + 3;
            if (data[i] != static_cast<float>(expected)) ++wrong;
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace ringd::client
