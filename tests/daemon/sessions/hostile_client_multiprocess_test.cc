#include <atomic>
#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "client/ringd.hpp"
#include "tests/daemon/service/ringd_process.h"
#include "tests/daemon/sessions/hostile_segment.h"

namespace ringd {
namespace {

// Two honest ranks that reduce without pause; a wrong sum or an error is remembered.
class HonestJob {
 public:
  explicit HonestJob(const std::string& socket) {
    for (int rank = 0; rank < 2; ++rank) {
      threads_.emplace_back([this, socket, rank] { Work(socket, rank); });
    }
    // Both have attached before anybody else does, who could otherwise be taken for them.
    const Clock::time_point deadline = Clock::now() + std::chrono::seconds(20);
    while (steps_ < 2 && Clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  // Steps done since the start, once both ranks have ended well; -1 if something was wrong.
  int Finish() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    return failed_ ? -1 : steps_.load();
  }

 private:
  void Work(const std::string& socket, int rank) {
    try {
      ringd_options options{};
      options.struct_size = sizeof(options);
      options.socket = socket.c_str();
      options.job_id = "honest";
      options.rank = rank;
      options.size = 2;
      options.local_rank = rank;
      options.local_size = 2;
      Context context(&options);
      auto values = context.Allocate<float>(2);
      const Registration registration = context.Register(AllReduce<float>("values", {2}));
      for (bool last = false; !last; ++steps_) {
        // The ranks agree on the last step by summing who wants to stop.
        values.span()[0] = static_cast<float>(rank + 1);
        values.span()[1] = stop_ ? 1.0F : 0.0F;
        context.Submit(registration, values.span()).Wait();
        if (values.span()[0] != 3.0F) failed_ = true;
        last = values.span()[1] > 0.0F;
      }
    } catch (const Error& error) {
      failed_ = true;
    }
  }

  std::atomic<bool> stop_{false};
  std::atomic<bool> failed_{false};
  std::atomic<int> steps_{0};
  std::vector<std::thread> threads_;
};

TEST_CASE("A hostile client loses its session and nobody else notices") {
  RingdProcess ringd;
  ringd.Start();
  REQUIRE(ringd.WaitForNotification("READY=1"));
  HonestJob honest(ringd.socket());
  int job = 0;
  const auto attacked = [&](auto attack) {
    HostileTrainer trainer(ringd.socket(), "hostile-" + std::to_string(job++));
    attack(trainer);
    const bool ended = trainer.IsEnded();
    UNSCOPED_INFO(trainer.ended_because());
    return ended;
  };
  const auto ends_after = [&](auto change) {
    return attacked([&](HostileTrainer& trainer) {
      Submission record = trainer.Honest(0);
      change(record, trainer);
      trainer.Push(record);
      trainer.Wake();
    });
  };

  CHECK_FALSE(ends_after([](Submission&, HostileTrainer&) {}));  // The honest record is accepted.

  CHECK(attacked([](HostileTrainer& trainer) {
    trainer.view().submission_cursors->produced.store(std::uint64_t{1} << 40);
    trainer.Wake();
  }));
  CHECK(attacked([](HostileTrainer& trainer) {
    trainer.view().submission_cursors->produced.store(UINT64_MAX);
    trainer.Wake();
  }));
  CHECK(ends_after([](Submission& record, HostileTrainer&) { record.sequence = 5; }));
  CHECK(ends_after([](Submission& record, HostileTrainer&) { record.registration = 12345; }));
  CHECK(ends_after(
      [](Submission& record, HostileTrainer&) { record.registration = UINT32_MAX - 1; }));
  CHECK(ends_after([](Submission& record, HostileTrainer&) { ++record.element_count; }));
  CHECK(ends_after([](Submission& record, HostileTrainer&) { record.element_count = UINT64_MAX; }));
  CHECK(ends_after([](Submission& record, HostileTrainer& trainer) {
    record.source_offset = trainer.arena_bytes() - 4;
  }));
  CHECK(ends_after([](Submission& record, HostileTrainer& trainer) {
    record.destination_offset = trainer.arena_bytes();
  }));
  CHECK(ends_after([](Submission& record, HostileTrainer&) {
    record.source_offset = record.destination_offset = UINT64_MAX - 3;
  }));
  CHECK(ends_after([](Submission& record, HostileTrainer&) {
    record.source_offset = record.destination_offset = 2;
  }));
  CHECK(ends_after([](Submission& record, HostileTrainer&) { record.destination_offset = 64; }));
  for (const std::uint32_t flag : {kSourceInPieces, kResultInPieces}) {
    CHECK(ends_after([flag](Submission& record, HostileTrainer&) {
      record.flags = flag;
      record.progress = kStagingProgressCount;
    }));
  }
  CHECK(attacked([](HostileTrainer& trainer) {
    // Work is done, but where its completions go the cursor is damaged.
    trainer.view().completion_cursors->consumed.store(UINT64_MAX / 2);
    // It is looked at only when the ring seems full.
    for (std::uint64_t i = 0; i < 6000; ++i) {
      trainer.Push(trainer.Honest(i));
      if (i % 500 == 0) trainer.Wake();
    }
  }));

  CHECK(honest.Finish() > 10);
  ringd.Signal(SIGTERM);

  CHECK(ringd.WaitForExit() == 0);
}

TEST_CASE("Random bytes all over the session segment never stop ringd") {
  const auto seed = GENERATE(range(std::uint32_t{1}, std::uint32_t{13}));
  CAPTURE(seed);
  RingdProcess ringd;
  ringd.Start();
  REQUIRE(ringd.WaitForNotification("READY=1"));
  HonestJob honest(ringd.socket());
  {
    std::mt19937_64 random(seed);
    HostileTrainer trainer(ringd.socket(), "hostile");
    auto* words = reinterpret_cast<std::uint64_t*>(trainer.base());
    const std::uint64_t count = trainer.segment_bytes() / sizeof(std::uint64_t);
    for (int i = 0; i < 20'000; ++i) {
      // Half of the writes aim at the cursors and the first records, where they hurt most.
      const std::uint64_t range = random() % 2 == 0 ? 64 : count;
      words[random() % range] = random() >> (random() % 64);
    }
    trainer.Wake();
  }
  CHECK(honest.Finish() > 2);
  ringd.Signal(SIGTERM);
  CHECK(ringd.WaitForExit() == 0);
}

}  // namespace
}  // namespace ringd
