// Tensors of a one-node job that lie in ordinary memory: the ranks are threads of the test. Runs
// under ThreadSanitizer too, which does not see what the kernel reads for another member.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "client/core/lanes/node/background_helper.h"
#include "client/core/lanes/node/local_operations.h"
#include "tests/client/core/lanes/node/local_job.h"

namespace ringd::client {
namespace {

constexpr std::uint64_t kCount = 300'000;

// All members of a job in which direct reading is settled.
struct SettledJob : LocalJob {
  explicit SettledJob(std::uint32_t count) : LocalJob(count) {
    Floats large(0, 0, kCount);
    for (auto& member : members) member->operations->DirectUseOf(large.registration);
    for (auto& member : members) {
      REQUIRE(member->operations->DirectUseOf(large.registration).kept_chunks != 0);
    }
  }
};

float Value(std::size_t member, std::uint64_t i) {
  return static_cast<float>(member + 1) + static_cast<float>(i % 7);
}

float SumOf(std::size_t members, std::uint64_t i) {
  float sum = 0;
  for (std::size_t m = 0; m < members; ++m) sum += Value(m, i);
  return sum;
}

// Elements from which on ranks read each other.
constexpr std::uint64_t kLeast = LocalOperations::kDirectFromBytes / sizeof(float);

void Fill(float* data, std::size_t member, std::uint64_t count = kCount) {
  for (std::uint64_t i = 0; i < count; ++i) data[i] = Value(member, i);
}

std::uint64_t Wrong(const float* data, std::size_t members, std::uint64_t count = kCount) {
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < count; ++i) wrong += data[i] != SumOf(members, i) ? 1 : 0;
  return wrong;
}

TEST_CASE("Ordinary memory: sums come out in place, elsewhere, and without direct reading") {
  const std::uint64_t count = GENERATE(kLeast - 1, kLeast, kLeast + 7, 300'001, 1'000'000);
  const bool direct = GENERATE(true, false);
  const bool in_place = GENERATE(true, false);
  LocalJob job(3, std::chrono::nanoseconds(0), false);
  for (auto& member : job.members) {
    member->Start(direct ? DirectReading::kIfAllowed : DirectReading::kOff);
  }
  Floats tensors[] = {{0, 0, count}, {0, 0, count}, {0, 0, count}};
  std::vector<std::vector<float>> sources(3, std::vector<float>(count));
  std::vector<std::vector<float>> results(3, std::vector<float>(count));
  // The first time the ranks still find out whether they may.
  for (int step = 0; step < 3; ++step) {
    std::vector<std::uint64_t> sequences;
    for (std::size_t m = 0; m < 3; ++m) {
      Fill(sources[m].data(), m, count);
      sequences.push_back(SubmitAnywhere(job[m], tensors[m].registration, sources[m].data(),
                                         in_place ? sources[m].data() : results[m].data()));
    }
    for (std::size_t m = 0; m < 3; ++m) CHECK(Finish(job[m], sequences[m]).status == 0);
    for (std::size_t m = 0; m < 3; ++m) {
      CHECK(Wrong(in_place ? sources[m].data() : results[m].data(), 3, count) == 0);
    }
  }
  CHECK((job[0].operations->DirectUseOf(tensors[0].registration).kept_chunks != 0) ==
        (direct && count * sizeof(float) >= LocalOperations::kDirectFromBytes));
}

TEST_CASE("Ordinary memory: one rank reads directly, one copies, one has its tensor in the arena") {
  // Each of them does all the work once.
  const std::size_t worker = GENERATE(0, 1, 2);
  SettledJob job(3);
  Floats tensor(0, 0, kCount);
  std::vector<float> direct(kCount);
  std::vector<float> copied(kCount);
  auto in_arena = job[2].allocator.AllocateZeroed(kCount * sizeof(float));
  REQUIRE(in_arena.ok());
  auto* const arena = static_cast<float*>(*in_arena);
  for (int step = 0; step < 2; ++step) {
    Fill(direct.data(), 0);
    Fill(copied.data(), 1);
    Fill(arena, 2);
    const std::uint64_t first =
        SubmitAnywhere(job[0], tensor.registration, direct.data(), direct.data());
    Submission record{};
    OperationEnd end;
    REQUIRE(job[1]
                .staging.Place(tensor.registration, copied.data(), copied.data(), record, end, {})
                .ok());
    CHECK_FALSE(end.split_source);
    REQUIRE(job[1].operations->TrySubmit(record, end) == SubmitResult::kOk);
    const std::uint64_t third = SubmitAnywhere(job[2], tensor.registration, arena, arena);
    if (worker == 1)
      REQUIRE(job[1].operations->Wait(record.sequence, InTenSeconds()) == WaitResult::kDone);
    if (worker == 2) REQUIRE(job[2].operations->Wait(third, InTenSeconds()) == WaitResult::kDone);
    CHECK(Finish(job[0], first).status == 0);
    CHECK(Finish(job[1], record.sequence).status == 0);
    CHECK(Finish(job[2], third).status == 0);
    CHECK(Wrong(direct.data(), 3) == 0);
    CHECK(Wrong(copied.data(), 3) == 0);
    CHECK(Wrong(arena, 3) == 0);
  }
}

TEST_CASE("Ordinary memory: a broadcast reaches all from its root, whose own copy comes, too") {
  SettledJob job(3);
  const std::size_t worker = GENERATE(0, 1);
  Floats tensors[] = {{0, 0, kCount}, {0, 0, kCount}, {0, 0, kCount}};
  std::vector<std::vector<float>> data(3, std::vector<float>(kCount));
  std::vector<float> source(kCount);
  Fill(source.data(), 0);
  std::vector<std::uint64_t> sequences;
  for (std::size_t m = 0; m < 3; ++m) {
    Registration& registration = tensors[m].registration;
    registration.description.kind = CollectiveKind::kBroadcast;
    registration.description.root_rank = 11;
    registration.sends = m == 1;
    registration.receives = m != 1;
    sequences.push_back(
        SubmitAnywhere(job[m], registration, m == 1 ? source.data() : nullptr, data[m].data()));
  }
  CHECK(Finish(job[worker], sequences[worker]).status == 0);
  for (std::size_t m = 0; m < 3; ++m) {
    if (m != worker) CHECK(Finish(job[m], sequences[m]).status == 0);
  }
  for (std::size_t m = 0; m < 3; ++m) CHECK(Wrong(data[m].data(), 1) == 0);
}

TEST_CASE(
    "Ordinary memory: a source that can't be read ends the operation at all ranks, in the same "
    "words") {
  SettledJob job(3);
  Floats tensor(0, 0, kCount);
  std::vector<std::vector<float>> data(3, std::vector<float>(kCount));
  std::vector<std::uint64_t> sequences;
  for (std::size_t m = 0; m < 3; ++m) {
    sequences.push_back(
        SubmitAnywhere(job[m], tensor.registration, data[m].data(), data[m].data()));
  }
  // As if rank 11 had unmapped it.
  job[1].memory.segment().Slot(0, 1, 0).ordinary_source = 8;
  const OperationOutcome first = Finish(job[0], sequences[0]);
  const OperationOutcome third = Finish(job[2], sequences[2]);
  for (const OperationOutcome& outcome : {first, third}) {
    CHECK(outcome.status == static_cast<int>(absl::StatusCode::kAborted));
    REQUIRE(outcome.text != nullptr);
    CHECK(outcome.text->find("tensor 't0'") != std::string::npos);
    CHECK(outcome.text->find("rank 11 any more (Bad address)") != std::string::npos);
  }
  CHECK(*first.text == *third.text);
  CHECK(Finish(job[1], sequences[1]).status == static_cast<int>(absl::StatusCode::kAborted));
  // The name is as good as before.
  sequences.clear();
  for (std::size_t m = 0; m < 3; ++m) {
    Fill(data[m].data(), m);
    sequences.push_back(
        SubmitAnywhere(job[m], tensor.registration, data[m].data(), data[m].data()));
  }
  for (std::size_t m = 0; m < 3; ++m) CHECK(Finish(job[m], sequences[m]).status == 0);
  for (std::size_t m = 0; m < 3; ++m) CHECK(Wrong(data[m].data(), 3) == 0);
}

TEST_CASE("Ordinary memory: what ringd says of a lost rank comes before what its memory says") {
  SettledJob job(2);
  Floats tensor(0, 0, kCount);
  std::vector<std::vector<float>> data(2, std::vector<float>(kCount));
  const std::uint64_t sequence =
      SubmitAnywhere(job[0], tensor.registration, data[0].data(), data[0].data());
  SubmitAnywhere(job[1], tensor.registration, data[1].data(), data[1].data());
  job[1].operations->GiveUp();  // its process has gone
  std::thread ringd([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    job[0].state.Fail("rank 11 was killed");
    job[0].operations->WakeAll();
  });
  CHECK(job[0].operations->Wait(sequence, InTenSeconds()) == WaitResult::kEnded);
  ringd.join();
}

TEST_CASE("Ordinary memory: a rank that has left before the others had read its part is named") {
  SettledJob job(2);
  Floats tensor(0, 0, kCount);
  std::vector<std::vector<float>> data(2, std::vector<float>(kCount));
  const std::uint64_t sequence =
      SubmitAnywhere(job[0], tensor.registration, data[0].data(), data[0].data());
  SubmitAnywhere(job[1], tensor.registration, data[1].data(), data[1].data());
  job[1].operations->GiveUp();
  const OperationOutcome outcome = Finish(job[0], sequence);
  CHECK(outcome.status == static_cast<int>(absl::StatusCode::kAborted));
  REQUIRE(outcome.text != nullptr);
  CHECK(outcome.text->find("rank 11 left the job") != std::string::npos);
}

TEST_CASE(
    "Ordinary memory: after the end of a context no thread of it writes there, and nobody reads "
    "there") {
  SettledJob job(2);
  constexpr std::uint64_t kMany = 2'000'000;
  Floats tensor(0, 0, kMany);
  std::vector<std::vector<float>> data(2, std::vector<float>(kMany, 1.0F));
  std::vector<std::uint64_t> sequences;
  for (std::size_t m = 0; m < 2; ++m) {
    sequences.push_back(
        SubmitAnywhere(job[m], tensor.registration, data[m].data(), data[m].data()));
  }
  // One thread is at work for the operation while the other ends the context and sees the end.
  std::atomic<bool> started{false};
  std::thread worker([&] {
    started = true;
    while (job[0].state.alive() && job[0].operations->Test(sequences[0]) == WaitResult::kTimeout) {
    }
  });
  while (!started) std::this_thread::yield();
  job[0].state.Close();
  const WaitResult result = job[0].operations->Wait(sequences[0], InTenSeconds());
  if (result == WaitResult::kEnded) {
    // Were a thread still to write, or the other rank to read and believe this, the checks below
    // would fail.
    std::fill(data[0].begin(), data[0].end(), 77.0F);
    const WaitResult other = job[1].operations->Wait(sequences[1], InTenSeconds());
    REQUIRE(other == WaitResult::kDone);
    OperationOutcome outcome;
    OperationEnd end;
    REQUIRE(job[1].operations->Consume(sequences[1], outcome, end));
    job[1].staging.Finish(end, outcome.status == 0);
    // It may have been read in time.
    CHECK((outcome.status != 0 ||
           std::count(data[1].begin(), data[1].end(), 2.0F) == static_cast<std::ptrdiff_t>(kMany)));
    CHECK(std::count(data[0].begin(), data[0].end(), 77.0F) == static_cast<std::ptrdiff_t>(kMany));
  }
  worker.join();
}

TEST_CASE("Ordinary memory: ranks that race through tensors anywhere get every sum right") {
  constexpr std::uint32_t kMembers = 3;
  constexpr int kSteps = 20;
  const std::vector<std::uint64_t> counts = {140'000, 131'072, 100, 40'000, 60'000, 133'333};
  const bool in_background = GENERATE(false, true);
  LocalJob job(kMembers, std::chrono::microseconds(50));
  std::vector<std::unique_ptr<BackgroundHelper>> helpers;
  for (std::uint32_t m = 0; in_background && m < kMembers; ++m) {
    helpers.push_back(std::make_unique<BackgroundHelper>(*job[m].operations, AlwaysRoom()));
    REQUIRE(helpers.back()->Start().ok());
  }
  std::atomic<std::uint64_t> wrong{0};
  std::vector<std::thread> threads;
  for (std::uint32_t m = 0; m < kMembers; ++m) {
    threads.emplace_back([&, m] {
      std::mt19937 random(m);
      Member& member = job[m];
      struct Mine {
        std::unique_ptr<Floats> tensor;
        std::vector<float> ordinary, result;
        float* arena = nullptr;
      };
      std::vector<Mine> mine;
      for (std::uint32_t t = 0; t < counts.size(); ++t) {
        auto block = member.allocator.AllocateZeroed(counts[t] * sizeof(float));
        if (!block.ok()) ++wrong;
        mine.push_back({std::make_unique<Floats>(t, t, counts[t]), std::vector<float>(counts[t]),
                        std::vector<float>(counts[t]), static_cast<float*>(*block)});
      }
      for (int step = 0; step < kSteps; ++step) {
        struct Sent {
          std::size_t tensor;
          std::uint64_t sequence;
          float* destination;
        };
        std::vector<Sent> sent;
        for (std::size_t t = 0; t < counts.size(); ++t) {
          float* const source = random() % 3 == 0 ? mine[t].arena : mine[t].ordinary.data();
          float* destination = source;
          if (random() % 2 == 0) {
            destination = source != mine[t].arena && random() % 2 == 0 ? mine[t].arena
                                                                       : mine[t].result.data();
          }
          Fill(source, m + static_cast<std::size_t>(step), counts[t]);
          std::uint64_t sequence = 0;
          Registration& registration = mine[t].tensor->registration;
          if (!TrySubmitAnywhere(member, registration, source, destination, sequence)) ++wrong;
          sent.push_back({t, sequence, destination});
        }
        if (in_background) std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
        std::shuffle(sent.begin(), sent.end(), random);
        for (const Sent& one : sent) {
          OperationOutcome outcome;
          if (!TryFinish(member, one.sequence, outcome) || outcome.status != 0) ++wrong;
          const auto offset = static_cast<float>(static_cast<int>(kMembers) * step);
          for (std::uint64_t i = 0; i < counts[one.tensor]; ++i) {
            if (one.destination[i] != SumOf(kMembers, i) + offset) ++wrong;
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
