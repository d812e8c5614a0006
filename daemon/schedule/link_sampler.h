// How long all-reduces take on the wire, by size, as one node sees it.
//
// A node that fills a bucket first waits for the others, and operations under way at once share the
// line: both make an operation look slower than the link. So
//   - an operation counts from when it was posted or the first message of another node came for it,
//     whichever is later;
//   - operations that overlap are taken together, as one of their bytes, and only if they are so large
//     that their latencies are small beside the transfer;
//   - of each size class (a power of two) the last kKept samples are kept, and a low percentile of them
//     speaks for it: what disturbs makes slower, never faster. The coordinator takes the smallest over
//     the nodes for the same reason.
//
// Thread safety: none. Reads no clock.
#ifndef RINGD_DAEMON_SCHEDULE_LINK_SAMPLER_H_
#define RINGD_DAEMON_SCHEDULE_LINK_SAMPLER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/schedule/measurements.h"
#include "daemon/schedule/schedule_time.h"

namespace ringd {

class LinkSampler {
 public:
  // Samples kept of a class, and how many a class needs before it says anything.
  static constexpr std::size_t kKept = 32;
  static constexpr std::size_t kNeeded = 4;
  // Operations that overlap must have at least this many bytes each, on average.
  static constexpr std::size_t kLargeBytes = std::size_t{512} << 10;

  // An operation is on the wire.
  void OnPosted() noexcept { ++in_flight_; }
  // An all-reduce of `bytes` > 0 that was posted has completed.
  void OnFinished(std::size_t bytes, TimePoint began, TimePoint finished);
  // A posted operation ended otherwise, or is no all-reduce: what overlapped with it says nothing.
  void OnSpoiled();

  // By size, at most one for each class.
  std::vector<LinkObservation> Observations() const;
  // Grows with each sample.
  std::uint64_t sample_count() const noexcept { return sample_count_; }

 private:
  struct Sample {
    std::size_t bytes = 0;
    std::chrono::nanoseconds time{0};
  };
  struct SizeClass {
    std::vector<Sample> samples;  // a circle once it is full
    std::size_t next = 0;
  };
  // Operations without a moment in which none was on the wire.
  struct Burst {
    std::size_t bytes = 0;
    std::size_t operations = 0;
    bool spoiled = false;
    TimePoint began;
    TimePoint finished;
  };

  void EndOne();
  void Add(Sample sample);

  std::size_t in_flight_ = 0;
  Burst burst_;
  std::array<SizeClass, 64> classes_;  // by floor(log2(bytes))
  std::uint64_t sample_count_ = 0;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_LINK_SAMPLER_H_
