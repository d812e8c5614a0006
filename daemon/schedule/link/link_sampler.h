// How long all-reduces take on the wire, by size, as one node sees it.
//
// Nodes do not begin together, and operations under way at once share the line. So
//   - a ring counts from when it was posted or the first message of another node came for it,
//     whichever is later, and a little is added for that message's own way: waiting for a late node
//     does not count, and what such a node sent ahead is accounted for;
//   - a small operation, of few messages, has no such part. It counts as a whole, unless a message
//     came before it was posted: then this node was the late one, and would measure hardly
//     anything;
//   - operations that overlap are taken together, as one of their bytes, and only if they are
//     large;
//   - of each size class (a power of two) the last kKept samples are kept. The median speaks for a
//     ring, the 20th percentile for a small operation, in which waiting counts;
//   - a ring's sample counts no more when it is older than kStaleTime and than kStaleSamples of
//     other rings: when a line becomes slower buckets begin to overlap on it, and what each took
//     alone before would count for ever;
//   - a class says nothing before it has kNeeded samples, but for large operations of kTellingTime
//     or more, beside which most of what disturbs is short. Until there are kNeeded the fastest of
//     them speaks: the first have new memory to touch.
//
// Thread safety: none. Reads no clock.
#ifndef RINGD_DAEMON_SCHEDULE_LINK_LINK_SAMPLER_H_
#define RINGD_DAEMON_SCHEDULE_LINK_LINK_SAMPLER_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/schedule/link/link_model.h"
#include "daemon/schedule/link/measurements.h"
#include "daemon/schedule/protocol/schedule_time.h"

namespace ringd {

class LinkSampler {
 public:
  // Samples kept of a class, and how many a class needs before it says anything.
  static constexpr std::size_t kKept = 32;
  static constexpr std::size_t kNeeded = 4;
  // Operations that overlap must have at least this many bytes each, on average.
  static constexpr std::size_t kLargeBytes = std::size_t{512} << 10;
  static constexpr std::chrono::nanoseconds kTellingTime = std::chrono::milliseconds(5);
  static constexpr std::uint64_t kStaleSamples = 2 * kKept;
  static constexpr std::chrono::nanoseconds kStaleTime = std::chrono::seconds(10);

  // Of an operation on this node. `first_received` is the epoch if no message ever came.
  struct Times {
    TimePoint posted;
    TimePoint first_received;
    TimePoint finished;
  };

  // `link` tells nodes, small_bytes and flat_bytes; the rest of it is ignored. `chunk_bytes`: of
  // one message of a ring.
  LinkSampler(const LinkModel& link, std::size_t chunk_bytes)
      : link_(link), chunk_bytes_(chunk_bytes) {}

  // An operation is on the wire.
  void OnPosted() noexcept { ++in_flight_; }
  // An all-reduce of `bytes` > 0 that was posted has completed.
  void OnFinished(std::size_t bytes, const Times& times);
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
    TimePoint at{};                // when it ended
    std::uint64_t ring_count = 0;  // ring_count_ then
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
    Times last;       // of the operation that ended last
    TimePoint began;  // when the first message of any came
    TimePoint finished;
  };

  bool IsSmall(std::size_t bytes) const { return !link_.IsRing(bytes); }
  void EndOne();
  // What one operation that nothing overlapped with says.
  std::optional<std::chrono::nanoseconds> TimeAlone(const Burst& burst) const;
  void Add(Sample sample);
  bool IsStale(const Sample& sample) const;

  const LinkModel link_;
  const std::size_t chunk_bytes_;
  std::size_t in_flight_ = 0;
  Burst burst_;
  std::array<SizeClass, 64> classes_;  // by floor(log2(bytes))
  std::uint64_t sample_count_ = 0;
  // Of these, of rings; and when the last one came.
  std::uint64_t ring_count_ = 0;
  TimePoint last_ring_at_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_LINK_LINK_SAMPLER_H_
