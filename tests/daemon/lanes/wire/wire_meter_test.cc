#include "daemon/lanes/wire/wire_meter.h"

#include <catch2/catch.hpp>

namespace ringd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct Metered {
  // One operation alone: posted now, first heard of after `wait`, done after `time`.
  void Run(std::uint32_t channel, milliseconds wait, milliseconds time,
           CollectiveKind kind = CollectiveKind::kAllReduce, std::size_t bytes = 1 << 20) {
    Completion completion;
    completion.id.channel = channel;
    completion.times.posted = now;
    completion.times.first_received = now + wait;
    now += time;
    completion.times.finished = now;
    meter.OnPosted();
    meter.OnCompleted(kind, bytes, completion);
  }
  void RunSome() {
    for (int i = 0; i < 8; ++i) Run(1, milliseconds(0), milliseconds(2));
  }
  bool Due(bool idle = true, Epoch epoch = 1) const { return meter.IsDue(idle, epoch, now); }

  static LinkModel TwoNodes() {
    LinkModel link;
    link.small_bytes = 32 << 10;
    return link;
  }

  WireMeter meter{TwoNodes(), 1 << 10};
  Clock::time_point now = Clock::time_point(std::chrono::hours(1));
};

}  // namespace

TEST_CASE("WireMeter: the link is not blamed for nodes that come late") {
  Metered metered;
  for (int i = 0; i < 8; ++i) metered.Run(3, milliseconds(40), milliseconds(43));
  const auto seen = metered.meter.TakeReport(1, metered.now);
  REQUIRE(seen.size() == 1);
  CHECK(seen[0].time >= milliseconds(3));
  CHECK(seen[0].time < milliseconds(4));
  CHECK(metered.meter.TimeOf(3).waited == milliseconds(40));
  CHECK(metered.meter.TimeOf(3).wire == milliseconds(3));
  CHECK(metered.meter.TimeOf(3).count == 8);
  metered.meter.Forget(3);
  CHECK(metered.meter.TimeOf(3).count == 0);
}

TEST_CASE("WireMeter: a bucket's time ends when the ranks have it, the link's when the wire has") {
  Metered metered;
  for (int i = 0; i < 8; ++i) {
    metered.Run(3, milliseconds(0), milliseconds(3));
    metered.meter.OnInPlace(3, milliseconds(2));
  }
  metered.meter.OnInPlace(4, milliseconds(2));  // of no learned bucket
  CHECK(metered.meter.TimeOf(3).wire > milliseconds(5) - std::chrono::microseconds(1));
  CHECK(metered.meter.TimeOf(3).wire <= milliseconds(5));
  CHECK(metered.meter.TimeOf(4).count == 0);
  const auto seen = metered.meter.TakeReport(1, metered.now);
  REQUIRE(seen.size() == 1);
  CHECK(seen[0].time < milliseconds(4));
}

TEST_CASE("WireMeter: only all-reduces that move bytes say something about the link") {
  Metered metered;
  for (int i = 0; i < 8; ++i) {
    metered.Run(0, milliseconds(0), milliseconds(2), CollectiveKind::kBroadcast);
    metered.Run(0, milliseconds(0), milliseconds(2), CollectiveKind::kAllReduce, 0);
  }
  metered.now += seconds(1);
  CHECK_FALSE(metered.Due());
  CHECK(metered.meter.TakeReport(1, metered.now).empty());
}

TEST_CASE("WireMeter: reports come between steps, ever more seldom, and end in the steady state") {
  Metered metered;
  CHECK_FALSE(metered.Due());
  metered.RunSome();
  CHECK_FALSE(metered.Due());
  std::vector<Clock::time_point> due;
  int told = 0;
  for (int i = 0; i < 6000; ++i) {
    metered.Run(1, milliseconds(0), milliseconds(2));
    metered.now += milliseconds(8);
    CHECK_FALSE((metered.Due(/*idle=*/false) && !metered.Due(/*idle=*/true)));
    if (!metered.Due()) continue;
    due.push_back(metered.now);
    told += metered.meter.TakeReport(1, metered.now).empty() ? 0 : 1;
  }
  REQUIRE(due.size() > 8);
  CHECK(due[1] - due[0] <= milliseconds(600));
  CHECK(due[8] - due[7] >= seconds(8));
  CHECK(told <= 6);
  CHECK(told >= 4);
}

TEST_CASE("WireMeter: a new schedule is told about soon again") {
  Metered metered;
  metered.RunSome();
  for (int i = 0; i < 12; ++i) {
    metered.now += seconds(20);
    metered.RunSome();
    metered.meter.TakeReport(1, metered.now);
  }
  metered.now += milliseconds(300);
  metered.RunSome();
  CHECK_FALSE(metered.Due(true, 1));
  CHECK(metered.Due(true, 2));
  CHECK_FALSE(metered.meter.TakeReport(2, metered.now).empty());
}

TEST_CASE("WireMeter: a changed link is told about in the steady state, too") {
  Metered metered;
  for (int i = 0; i < 12; ++i) {
    metered.now += seconds(20);
    metered.RunSome();
    metered.meter.TakeReport(1, metered.now);
  }
  CHECK(metered.meter.TakeReport(1, metered.now).empty());
  for (int i = 0; i < 40; ++i) metered.Run(1, milliseconds(0), milliseconds(6));
  CHECK_FALSE(metered.meter.TakeReport(1, metered.now).empty());
}

TEST_CASE("WireMeter: that a size counts no more is told about in the steady state, too") {
  Metered metered;
  const auto run_large = [&](std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      metered.Run(1, milliseconds(0), seconds(1), CollectiveKind::kAllReduce, 8 << 20);
    }
  };
  metered.RunSome();
  run_large(LinkSampler::kNeeded);
  for (int i = 0; i < 12; ++i) metered.meter.TakeReport(1, metered.now);
  CHECK(metered.meter.TakeReport(1, metered.now).empty());
  run_large(LinkSampler::kStaleSamples);
  CHECK(metered.meter.TakeReport(1, metered.now).size() == 1);
}

TEST_CASE("WireMeter: a job that is never idle reports all the same, later") {
  Metered metered;
  metered.RunSome();
  metered.now += milliseconds(300);
  CHECK_FALSE(metered.Due(false, 0));
  CHECK(metered.Due(true, 0));
  metered.now += milliseconds(300);
  CHECK(metered.Due(false, 0));
}

}  // namespace ringd
