// What traces cost the engine, counted in events and not in time; and who may have them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/daemon/engine/called_engine.h"

namespace ringd {
namespace {

// A trainer's ring is full, and has been for long.
void Fill(const Trainer& trainer) {
  trainer.trace_ring.header->written.store(std::uint64_t{1} << 40);
}

// All that a node of one rank has.
v1::TraceRequest AllOf(const Trainer& trainer) {
  v1::TraceRequest request;
  request.set_job_id(trainer.job_id);
  request.add_positions()->add_rings(0);
  request.mutable_positions(0)->add_rings(0);
  return request;
}

// Answers as they come.
class Answers {
 public:
  Answer<v1::TraceReply> Taker() {
    return [this](const absl::Status& status, v1::TraceReply reply) {
      const std::lock_guard lock(mutex_);
      came_.push_back({status, std::move(reply)});
      changed_.notify_all();
    };
  }
  std::vector<Awaited<v1::TraceReply>> Await(std::size_t count) {
    std::unique_lock lock(mutex_);
    REQUIRE(
        changed_.wait_for(lock, std::chrono::seconds(60), [&] { return came_.size() >= count; }));
    return came_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Awaited<v1::TraceReply>> came_;
};

TEST_CASE("Engine: traces of many jobs are read a few events a turn, and each job gets its own") {
  constexpr std::size_t kJobs = 12;
  Node node;
  std::vector<Trainer> trainers;
  for (std::size_t i = 0; i < kJobs; ++i) trainers.push_back(node.Join(1000));
  const Trainer other = node.Join(2000);
  for (const Trainer& trainer : trainers) Fill(trainer);
  Fill(other);
  Answers answers;
  const std::uint64_t before = node.engine->sliced_entries();
  for (const Trainer& trainer : trainers) {
    node.engine->TraceJob({1000}, AllOf(trainer), answers.Taker());
  }
  node.engine->TraceJob({2000}, AllOf(other), answers.Taker());

  const auto came = answers.Await(kJobs + 1);
  std::vector<std::string> jobs;
  for (const auto& [status, reply] : came) {
    REQUIRE(status.message() == "");
    REQUIRE(reply.nodes(0).has_trace());
    // What was there when it was read; the rest is told as lost.
    const v1::TraceRing& ring = reply.nodes(0).trace().rings(1);
    CHECK(ring.next() == std::uint64_t{1} << 40);
    CHECK(ring.lost() >= (std::uint64_t{1} << 40) - kTrainerTraceEvents);
    CHECK_FALSE(ring.more());
    jobs.push_back(reply.job_id());
  }
  // Another user does not wait for all of theirs.
  CHECK(jobs.back() != other.job_id);
  for (const Trainer& trainer : trainers) {
    CHECK(std::count(jobs.begin(), jobs.end(), trainer.job_id) == 1);
  }
  // Sixteen events to an entry, of which a turn does 64.
  CHECK(node.engine->sliced_entries() - before >= (kJobs + 1) * (kTrainerTraceEvents - 1) / 16);
  CHECK(node.engine->most_sliced_entries() <= 70);
}

TEST_CASE("Engine: a job that goes while its trace is read is answered, and ends") {
  Node node;
  const Trainer trainer = node.Join(1000);
  Fill(trainer);
  Answers answers;
  constexpr std::size_t kCalls = 4;
  for (std::size_t i = 0; i < kCalls; ++i) {
    node.engine->TraceJob({1000}, AllOf(trainer), answers.Taker());
  }
  ::shutdown(trainer.lifeline.get(), SHUT_RDWR);
  CHECK(answers.Await(kCalls).size() == kCalls);
}

TEST_CASE("Engine: a job is traced for its user and for operators, and does not exist for others") {
  Node node;
  const Trainer mine = node.Join(1000);
  v1::TraceRequest request;
  request.set_job_id(mine.job_id);
  const auto trace = [&](const Caller& caller) {
    return Await<v1::TraceReply>([&](Answer<v1::TraceReply> answer) {
      node.engine->TraceJob(caller, request, std::move(answer));
    });
  };
  for (const Caller& caller : {Caller{1000, false}, Caller{2000, true}}) {
    const auto shown = trace(caller);
    REQUIRE(shown.status.message() == "");
    CHECK(shown.reply.schema_version() == 1);
    REQUIRE(shown.reply.nodes_size() == 1);
    CHECK(shown.reply.nodes(0).ranks_size() == 1);
    CHECK(shown.reply.nodes(0).has_trace());
  }
  const auto hidden = trace({2000, false});
  CHECK(hidden.status.code() == absl::StatusCode::kNotFound);
  request.set_job_id("no such job");
  const std::string unknown(trace({1000, false}).status.message());
  CHECK(unknown.find("no such job") != std::string::npos);
}

}  // namespace
}  // namespace ringd
