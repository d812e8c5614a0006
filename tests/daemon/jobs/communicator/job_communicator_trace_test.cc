// What a communicator over several nodes notes of its operations, and what it believes of its
// ranks' notes.
#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "daemon/jobs/communicator/job_communicator.h"
#include "daemon/jobs/communicator/trace_reading.h"
#include "tests/daemon/jobs/communicator/played_job.h"

namespace ringd {
namespace {

std::vector<TraceEvent> EventsOf(const v1::TraceRing& ring) {
  std::vector<TraceEvent> events(ring.events().size() / sizeof(TraceEvent));
  if (events.empty()) return events;
  std::memcpy(events.data(), ring.events().data(), ring.events().size());
  return events;
}

FindTraced Only(const PlayedJob& job) {
  return [&job](TracedPart part) { return part.is_all_ranks() ? &*job.communicator : nullptr; };
}

v1::NodeTrace Read(const PlayedJob& job, const v1::TracePosition& position = {},
                   std::size_t most = 1000) {
  TraceReading reading(position, most);
  // A few at a time, as the engine does.
  while (!reading.done()) reading.Step(*job.communicator, Only(job), 3);
  v1::NodeTrace trace = reading.TakeTrace();
  REQUIRE(trace.rings_size() == 1 + static_cast<int>(kRanks));
  return trace;
}

void RunOne(PlayedJob& job) {
  job.StartAndRunRing();
  job.Complete();
  while (job.Advance() > 0) {
  }
}

// As a rank that plays by its own rules.
TraceWriter WriterOf(PlayedJob& job, std::size_t member) {
  return TraceWriter(job.sessions[member].lock()->trace_ring());
}

TraceEvent Wait(std::uint64_t at_ns) {
  TraceEvent event;
  event.stage = TraceStage::kWaited;
  event.at_ns = at_ns;
  event.value = 5;
  return event;
}

TEST_CASE("JobCommunicator: notes an operation's stages in their order, with its tensors") {
  PlayedJob job;
  RunOne(job);
  const v1::NodeTrace trace = Read(job);
  const std::vector<TraceEvent> events = EventsOf(trace.rings(0));
  std::vector<TraceStage> stages;
  stages.reserve(events.size());
  for (const TraceEvent& event : events) stages.push_back(event.stage);
  CHECK(stages == std::vector<TraceStage>{TraceStage::kSubmitted, TraceStage::kSubmitted,
                                          TraceStage::kReady, TraceStage::kStarted,
                                          TraceStage::kCarries, TraceStage::kPosted,
                                          TraceStage::kMoved, TraceStage::kCompleted});
  for (std::size_t i = 1; i < events.size(); ++i) {
    CHECK(events[i].at_ns >= events[i - 1].at_ns);
  }
  CHECK(events[0].member == 0);
  CHECK(events[1].member == 1);
  CHECK(events[1].value == kBytes);
  CHECK(events[3].value == kBytes);
  for (std::size_t i = 3; i < events.size(); ++i) {
    CHECK(events[i].channel == 0);
    CHECK(events[i].sequence == 0);
  }
  REQUIRE(trace.tensors_size() == 1);
  CHECK(trace.tensors(0).name() == "t");
  CHECK(trace.tensors(0).number() == events[4].tensor);
}

TEST_CASE("JobCommunicator: by order, stages are noted among the job's, under the number") {
  OperationTrace trace;
  PlayedJob job(/*by_order=*/true, &trace);
  job.registration.order = (std::uint64_t{1} << 20) + 3;
  job.Submit();
  job.Advance();
  REQUIRE(job.wire->posted.size() == 2);
  job.wire->RunRing(job.wire->posted[1]);
  for (const std::size_t which : {1, 0}) {
    job.wire->Complete(job.wire->posted[which], CollectiveOutcome::kDone);
    while (job.Advance() > 0) {
    }
  }
  std::vector<TraceEvent> events;
  TraceReader(trace.ring()).Read(0, 1000, events);
  // Where the communicator's members stand among the job's.
  REQUIRE(events.size() > 1);
  CHECK(events[0].member == 1);
  CHECK(events[1].member == 2);
  std::vector<TraceStage> stages;
  for (const TraceEvent& event : events) {
    stages.push_back(event.stage);
    if (event.stage < TraceStage::kStarted || event.stage == TraceStage::kCarries) {
      CHECK(event.tensor == TracedOrdered(1048579));
    }
    CHECK(TracedPart::OfWord(event.channel) == TracedPart(1));
  }
  CHECK(stages == std::vector<TraceStage>{TraceStage::kSubmitted, TraceStage::kSubmitted,
                                          TraceStage::kReady, TraceStage::kStarted,
                                          TraceStage::kCarries, TraceStage::kPosted,
                                          TraceStage::kMoved, TraceStage::kCompleted});
  CHECK(job.communicator->NameOfTraced(0).empty());
  CHECK(job.communicator->trace_ring(0).header == nullptr);
}

TEST_CASE("JobCommunicator: another one's stages are noted among the job's, with its names") {
  OperationTrace trace;
  PlayedJob job(/*by_order=*/false, &trace);
  RunOne(job);
  std::vector<TraceEvent> events;
  TraceReader(trace.ring()).Read(0, 1000, events);
  REQUIRE(events.size() == 8);
  CHECK(events[0].member == 1);
  for (const TraceEvent& event : events) {
    CHECK(TracedPart::OfWord(event.channel) == TracedPart(1));
    CHECK(TracedPart::ChannelOf(event.channel) == 0);
  }
  CHECK(job.communicator->NameOfTraced(events[0].tensor) == "t");
  CHECK(job.communicator->trace_ring(0).header == nullptr);
}

TEST_CASE("TraceReading: events of other communicators are believed of their members alone") {
  PlayedJob job;
  OperationTrace trace;
  PlayedJob other(/*by_order=*/false, &trace);  // of the job's second and third rank here
  const auto find = [&](TracedPart part) {
    if (part.is_all_ranks()) return &*job.communicator;
    return part == TracedPart(1) ? &*other.communicator : nullptr;
  };
  for (std::size_t m = 0; m < kRanks; ++m) {
    TraceWriter rank = WriterOf(job, m);
    for (const std::uint32_t number : {1, 2}) {
      TraceEvent event = Wait(MonotonicNanos());
      event.channel = TracedPart(number).WordOf(0);
      event.tensor = other.registration.tensor;
      rank.Write(event);
    }
  }
  TraceReading reading({}, 1000);
  while (!reading.done()) reading.Step(*job.communicator, find, 3);
  const v1::NodeTrace read = reading.TakeTrace();
  CHECK(EventsOf(read.rings(1)).empty());
  REQUIRE(EventsOf(read.rings(2)).size() == 1);
  REQUIRE(read.tensors_size() == 1);
  CHECK(read.tensors(0).part() == 1);
  CHECK(read.tensors(0).name() == "t");
  REQUIRE(read.communicators_size() == 1);
  CHECK(read.communicators(0).name() == "tp");
  REQUIRE(read.communicators(0).members_size() == 2);
  CHECK(read.communicators(0).members(1) == 2);
}

TEST_CASE("JobCommunicator: a submission's time is the trainer's word where it can be true") {
  PlayedJob job;
  const Clock::time_point now = Clock::now();
  const std::uint64_t now_ns = NanosOf(now);
  std::uint64_t number = 0;
  for (const std::uint64_t word : {now_ns - 1000, now_ns + 1'000'000, std::uint64_t{0}}) {
    CheckedSubmission submission;
    submission.sequence = number++;
    submission.registration = &job.registration;
    submission.submitted_ns = word;
    job.communicator->Submit(0, submission, now);
  }
  const std::vector<TraceEvent> events = EventsOf(Read(job).rings(0));
  REQUIRE(events.size() == 3);
  CHECK(events[0].at_ns == now_ns - 1000);
  CHECK(events[1].at_ns == now_ns);
  CHECK(events[2].at_ns == now_ns);
  job.communicator->Fail(absl::AbortedError("the end"));
}

TEST_CASE("JobCommunicator: a trace goes on where the last one ended") {
  PlayedJob job;
  RunOne(job);
  const v1::NodeTrace first = Read(job);
  v1::TracePosition position;
  for (const v1::TraceRing& ring : first.rings()) position.add_rings(ring.next());
  CHECK(EventsOf(Read(job, position).rings(0)).empty());
  RunOne(job);
  const std::vector<TraceEvent> events = EventsOf(Read(job, position).rings(0));
  REQUIRE(events.size() == 8);
  CHECK(events.back().sequence == 1);
}

TEST_CASE("JobCommunicator: an answer has as many events as it may, and says that there are more") {
  PlayedJob job;
  RunOne(job);
  const v1::NodeTrace trace = Read(job, {}, 6);
  CHECK(EventsOf(trace.rings(0)).size() == 2);
  CHECK(trace.rings(0).more());
  CHECK(trace.rings(0).next() == 2);
}

TEST_CASE("JobCommunicator: of a rank's notes only those are passed on that may be true") {
  PlayedJob job;
  TraceWriter rank = WriterOf(job, 1);
  const std::uint64_t now_ns = MonotonicNanos();
  rank.Write(Wait(now_ns));
  TraceEvent as_another = Wait(now_ns);
  as_another.member = 0;
  rank.Write(as_another);
  rank.Write(Wait(now_ns + 3'600'000'000'000));  // the future
  TraceEvent forever = Wait(now_ns);
  forever.value = now_ns + 1;
  rank.Write(forever);
  // An engine's, and one of no kind.
  for (const auto stage :
       {TraceStage::kCompleted, TraceStage::kMoved, static_cast<TraceStage>(99)}) {
    TraceEvent event = Wait(now_ns);
    event.stage = stage;
    event.tensor = job.registration.tensor;
    rank.Write(event);
  }
  TraceEvent exchanged = Wait(now_ns);
  exchanged.stage = TraceStage::kRankExchange;
  exchanged.tensor = 12'345;  // no tensor
  rank.Write(exchanged);
  const v1::NodeTrace trace = Read(job);
  const std::vector<TraceEvent> events = EventsOf(trace.rings(2));
  REQUIRE(events.size() == 2);
  // It is whose ring it is, whatever it says.
  for (const TraceEvent& event : events) CHECK(event.member == 1);
  CHECK(EventsOf(trace.rings(1)).empty());
}

TEST_CASE(
    "JobCommunicator: rubbish in a rank's ring costs a bounded read, and the others nothing") {
  PlayedJob job;
  RunOne(job);
  const TraceRingView ring = job.sessions[0].lock()->trace_ring();
  for (std::uint32_t slot = 0; slot < ring.capacity; ++slot) {
    for (auto& word : ring.slots[slot].words) word.store(0x9e3779b97f4a7c15 * (slot + 1));
  }
  WriterOf(job, 1).Write(Wait(MonotonicNanos()));
  for (const std::uint64_t written : {std::uint64_t{1} << 63, UINT64_MAX, std::uint64_t{3}}) {
    ring.header->written.store(written);
    v1::TracePosition position;
    for (std::uint64_t i = 0; i < 3; ++i) position.add_rings(i == 0 ? 0 : UINT64_MAX / 2);
    position.set_rings(2, 0);
    const v1::NodeTrace trace = Read(job, position, 300);
    CHECK(EventsOf(trace.rings(1)).size() <= 300);
    CHECK(EventsOf(trace.rings(0)).size() == 8);
    CHECK(EventsOf(trace.rings(2)).size() == 1);
  }
}

// All that there is.
v1::TracePosition Beginning() {
  v1::TracePosition position;
  for (std::size_t i = 0; i <= kRanks; ++i) position.add_rings(0);
  return position;
}

TEST_CASE("TraceReading: a step costs what it may, whatever the rings say") {
  PlayedJob job;
  RunOne(job);
  for (const std::uint64_t written : {std::uint64_t{1} << 63, UINT64_MAX, std::uint64_t{30'000}}) {
    for (std::size_t m = 0; m < kRanks; ++m) {
      job.sessions[m].lock()->trace_ring().header->written.store(written);
    }
    for (const std::size_t most : {0, 10, 1000, 16'384}) {
      TraceReading reading(Beginning(), most);
      std::size_t cost = 0;
      while (!reading.done()) {
        const std::size_t taken = reading.Step(*job.communicator, Only(job), 128);
        REQUIRE(taken > 0);
        REQUIRE(taken <= 128 + 4);
        cost += taken;
      }
      // Each ring has its price, even if nothing is read of it, and the name of the one tensor has.
      CHECK(cost <= most + kRanks + 1 + 4);
    }
  }
}

TEST_CASE("TraceReading: what is overwritten between two steps is counted as lost") {
  PlayedJob job;
  TraceWriter rank = WriterOf(job, 0);
  const std::uint64_t now_ns = MonotonicNanos();
  const bool goes_on = GENERATE(true, false);
  for (int i = 0; i < 5000; ++i) rank.Write(Wait(now_ns));
  TraceReading reading(goes_on ? Beginning() : v1::TracePosition(), 50'000);
  // The engine's ring, and something of the rank's.
  reading.Step(*job.communicator, Only(job), 500);
  for (int i = 0; i < 10'000; ++i) rank.Write(Wait(now_ns));
  while (!reading.done()) reading.Step(*job.communicator, Only(job), 500);
  const v1::NodeTrace trace = reading.TakeTrace();
  const v1::TraceRing& ring = trace.rings(1);
  const std::uint64_t begin = goes_on ? 0 : 5000 - 2048;
  CHECK(ring.next() == 15'000);
  CHECK_FALSE(ring.more());
  CHECK(ring.lost() > 0);
  CHECK(EventsOf(ring).size() + ring.lost() == 15'000 - begin);
}

}  // namespace
}  // namespace ringd
