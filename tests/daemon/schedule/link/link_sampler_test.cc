#include "daemon/schedule/link/link_sampler.h"

#include <catch2/catch.hpp>
#include <chrono>

namespace ringd {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::size_t kKiB = std::size_t{1} << 10;
constexpr std::size_t kMiB = std::size_t{1} << 20;

LinkModel Nodes(int count) {
  LinkModel link;
  link.node_count = count;
  link.small_bytes = 32 * kKiB;
  return link;
}

struct Sampled {
  explicit Sampled(int nodes = 2) : sampler(Nodes(nodes), 128 * kKiB) {}

  // One operation alone: the first message came `wait` after it was posted, the end `time` later.
  void Alone(std::size_t bytes, std::chrono::nanoseconds time,
             std::chrono::nanoseconds wait = microseconds(50)) {
    sampler.OnPosted();
    sampler.OnFinished(bytes, {now, now + wait, now + wait + time});
    now += wait + time + milliseconds(1);
  }
  LinkObservation Only() const {
    const auto seen = sampler.Observations();
    REQUIRE(seen.size() == 1);
    return seen[0];
  }

  LinkSampler sampler;
  TimePoint now = TimePoint() + std::chrono::hours(1);
};

}  // namespace

TEST_CASE("LinkSampler: tells of a size once it was seen often enough") {
  Sampled sampled;
  for (std::size_t i = 1; i < LinkSampler::kNeeded; ++i) sampled.Alone(2 * kMiB, milliseconds(3));
  CHECK(sampled.sampler.Observations().empty());
  sampled.Alone(2 * kMiB, milliseconds(3));
  CHECK(sampled.Only().bytes == 2 * kMiB);
  CHECK(sampled.Only().samples == LinkSampler::kNeeded);
  CHECK(sampled.Only().time >= milliseconds(3));
  CHECK(sampled.Only().time < milliseconds(4));
}

TEST_CASE("LinkSampler: what is large and takes long speaks at once, the fastest first") {
  Sampled sampled;
  sampled.Alone(64 * kMiB, milliseconds(300));
  CHECK(sampled.Only().samples == 1);
  CHECK(sampled.Only().time >= milliseconds(300));
  sampled.Alone(64 * kMiB, milliseconds(60));
  sampled.Alone(64 * kMiB, milliseconds(70));
  CHECK(sampled.Only().samples == 3);
  CHECK(sampled.Only().time < milliseconds(61));
  // From then on the one in the middle.
  sampled.Alone(64 * kMiB, milliseconds(80));
  sampled.Alone(64 * kMiB, milliseconds(80));
  CHECK(sampled.Only().time > milliseconds(69));
}

TEST_CASE(
    "LinkSampler: what single buckets took counts no more once they have overlapped for long") {
  Sampled sampled;
  for (int i = 0; i < 8; ++i) sampled.Alone(1 * kMiB, milliseconds(10));
  for (int i = 0; i < 8; ++i) sampled.Alone(4 * kKiB, microseconds(1), microseconds(80));
  REQUIRE(sampled.sampler.Observations().size() == 2);
  const auto overlap = [&](std::uint64_t times, std::chrono::nanoseconds time) {
    for (std::uint64_t i = 0; i < times; ++i) sampled.Alone(8 * kMiB, time);
  };
  SECTION("long ago, many others since") {
    overlap(LinkSampler::kStaleSamples, milliseconds(800));
    const auto seen = sampled.sampler.Observations();
    REQUIRE(seen.size() == 2);
    CHECK(seen[0].bytes == 4 * kKiB);
    CHECK(seen[1].bytes == 8 * kMiB);
  }
  SECTION("but for one now and then, as slow as all are now") {
    for (int i = 0; i < 8; ++i) {
      overlap(LinkSampler::kStaleSamples / 4, milliseconds(800));
      sampled.Alone(1 * kMiB, milliseconds(100));
    }
    const auto seen = sampled.sampler.Observations();
    REQUIRE(seen.size() == 3);
    CHECK(seen[1].bytes == 1 * kMiB);
    CHECK(seen[1].time > milliseconds(99));
  }
  SECTION("many others, in no time") {
    overlap(LinkSampler::kStaleSamples, milliseconds(8));
    CHECK(sampled.sampler.Observations().size() == 3);
  }
  SECTION("long ago, few others since") {
    overlap(LinkSampler::kStaleSamples - 1, milliseconds(800));
    CHECK(sampled.sampler.Observations().size() == 3);
  }
}

TEST_CASE("LinkSampler: a small operation that takes long does not speak alone") {
  Sampled sampled;
  sampled.Alone(256 * kKiB, milliseconds(30));
  sampled.Alone(4 * kKiB, milliseconds(30));
  CHECK(sampled.sampler.Observations().empty());
}

TEST_CASE("LinkSampler: waiting for a late node does not count in a ring") {
  Sampled sampled;
  for (int i = 0; i < 20; ++i) sampled.Alone(64 * kMiB, milliseconds(300), milliseconds(10 * i));
  CHECK(sampled.Only().time < milliseconds(301));
}

TEST_CASE("LinkSampler: the first message's way is added to a ring that has few") {
  // Two rounds, one message each: the second one was timed.
  Sampled two(2);
  for (int i = 0; i < 8; ++i) two.Alone(64 * kKiB, microseconds(300));
  CHECK(two.Only().time == microseconds(600));
  // Six rounds.
  Sampled four(4);
  for (int i = 0; i < 8; ++i) four.Alone(64 * kKiB, microseconds(500));
  CHECK(four.Only().time == microseconds(600));
}

TEST_CASE(
    "LinkSampler: a small operation counts as a whole, and waiting now and then changes nothing") {
  Sampled sampled;
  for (int i = 0; i < 64; ++i) {
    sampled.Alone(4 * kKiB, microseconds(1), i % 3 == 0 ? microseconds(79) : milliseconds(i));
  }
  CHECK(sampled.Only().time == microseconds(80));
  CHECK(sampled.Only().samples == LinkSampler::kKept);
}

TEST_CASE("LinkSampler: a node that comes late to a small operation measures nothing") {
  Sampled sampled;
  for (int i = 0; i < 64; ++i)
    sampled.Alone(4 * kKiB, microseconds(1), std::chrono::nanoseconds(300));
  CHECK(sampled.sampler.Observations().empty());
  for (int i = 0; i < 4; ++i) sampled.Alone(4 * kKiB, microseconds(1), microseconds(99));
  CHECK(sampled.Only().time == microseconds(100));
}

TEST_CASE("LinkSampler: some lucky samples do not speak for the others") {
  Sampled sampled;
  for (int i = 0; i < 5; ++i) sampled.Alone(64 * kMiB, microseconds(1));
  for (int i = 0; i < 20; ++i) sampled.Alone(64 * kMiB, milliseconds(800));
  CHECK(sampled.Only().time >= milliseconds(800));
}

TEST_CASE("LinkSampler: forgets the old when the link has changed") {
  Sampled sampled;
  for (int i = 0; i < 50; ++i) sampled.Alone(64 * kMiB, milliseconds(100));
  for (std::size_t i = 0; i < LinkSampler::kKept; ++i) sampled.Alone(64 * kMiB, milliseconds(1000));
  CHECK(sampled.Only().time >= milliseconds(1000));
}

TEST_CASE("LinkSampler: large operations that overlap count as one, small ones not at all") {
  const std::size_t bytes = GENERATE(64 * kKiB, 2 * kMiB);
  Sampled sampled;
  for (std::size_t i = 0; i < LinkSampler::kNeeded; ++i) {
    sampled.sampler.OnPosted();
    sampled.sampler.OnPosted();
    const TimePoint now = sampled.now;
    sampled.sampler.OnFinished(bytes, {now, now, now + milliseconds(3)});
    sampled.sampler.OnFinished(bytes, {now, now + milliseconds(1), now + milliseconds(5)});
    sampled.now += milliseconds(7);
  }
  const auto seen = sampled.sampler.Observations();
  if (bytes < LinkSampler::kLargeBytes) {
    CHECK(seen.empty());
  } else {
    REQUIRE(seen.size() == 1);
    CHECK(seen[0].bytes == 2 * bytes);
    CHECK(seen[0].time == milliseconds(5));
  }
}

TEST_CASE("LinkSampler: what overlaps with something else says nothing") {
  Sampled sampled;
  for (int i = 0; i < 10; ++i) {
    sampled.sampler.OnPosted();
    sampled.sampler.OnPosted();
    sampled.sampler.OnSpoiled();
    sampled.sampler.OnFinished(kMiB, {sampled.now, sampled.now, sampled.now + milliseconds(3)});
  }
  CHECK(sampled.sampler.sample_count() == 0);
  sampled.Alone(kMiB, milliseconds(3));
  CHECK(sampled.sampler.sample_count() == 1);
}

}  // namespace ringd
