#include "daemon/schedule/link_sampler.h"

#include <catch2/catch.hpp>
#include <chrono>

namespace ringd {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::size_t kKiB = std::size_t{1} << 10;
constexpr std::size_t kMiB = std::size_t{1} << 20;

struct Sampled {
  // One operation alone, of which the wire took `time`.
  void Alone(std::size_t bytes, std::chrono::nanoseconds time) {
    sampler.OnPosted();
    sampler.OnFinished(bytes, now, now + time);
    now += time + milliseconds(1);
  }

  LinkSampler sampler;
  TimePoint now = TimePoint() + std::chrono::hours(1);
};

}  // namespace

TEST_CASE("LinkSampler: tells of a size once it was seen often enough") {
  Sampled sampled;
  for (std::size_t i = 1; i < LinkSampler::kNeeded; ++i) sampled.Alone(kMiB, milliseconds(3));
  CHECK(sampled.sampler.Observations().empty());
  sampled.Alone(kMiB, milliseconds(3));
  const auto seen = sampled.sampler.Observations();
  REQUIRE(seen.size() == 1);
  CHECK(seen[0] == LinkObservation{kMiB, milliseconds(3), LinkSampler::kNeeded});
}

TEST_CASE("LinkSampler: waiting for others now and then changes nothing") {
  Sampled sampled;
  for (int i = 0; i < 64; ++i) {
    sampled.Alone(4 * kKiB, i % 3 == 0 ? microseconds(80) : milliseconds(i));
  }
  const auto seen = sampled.sampler.Observations();
  REQUIRE(seen.size() == 1);
  CHECK(seen[0].time == microseconds(80));
  CHECK(seen[0].samples == LinkSampler::kKept);
}

TEST_CASE("LinkSampler: one lucky sample does not speak for the others") {
  Sampled sampled;
  sampled.Alone(kMiB, microseconds(1));
  for (int i = 0; i < 20; ++i) sampled.Alone(kMiB, milliseconds(8));
  CHECK(sampled.sampler.Observations().at(0).time == milliseconds(8));
}

TEST_CASE("LinkSampler: forgets the old when the link has changed") {
  Sampled sampled;
  for (int i = 0; i < 50; ++i) sampled.Alone(kMiB, milliseconds(1));
  for (std::size_t i = 0; i < LinkSampler::kKept; ++i) sampled.Alone(kMiB, milliseconds(10));
  CHECK(sampled.sampler.Observations().at(0).time == milliseconds(10));
}

TEST_CASE("LinkSampler: large operations that overlap count as one, small ones not at all") {
  const std::size_t bytes = GENERATE(64 * kKiB, 2 * kMiB);
  Sampled sampled;
  for (std::size_t i = 0; i < LinkSampler::kNeeded; ++i) {
    sampled.sampler.OnPosted();
    sampled.sampler.OnPosted();
    sampled.sampler.OnFinished(bytes, sampled.now, sampled.now + milliseconds(3));
    sampled.sampler.OnFinished(bytes, sampled.now + milliseconds(1), sampled.now + milliseconds(5));
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
    sampled.sampler.OnFinished(kMiB, sampled.now, sampled.now + milliseconds(3));
  }
  CHECK(sampled.sampler.sample_count() == 0);
  sampled.Alone(kMiB, milliseconds(3));
  CHECK(sampled.sampler.sample_count() == 1);
}

}  // namespace ringd
