#include "daemon/schedule/link/link_sampler.h"

#include <algorithm>
#include <bit>

namespace ringd {
namespace {

constexpr std::size_t kRingPercentile = 50;
constexpr std::size_t kSmallPercentile = 20;

// No message gets here so soon after the posting that was not on its way before.
constexpr std::chrono::nanoseconds kSentAhead = std::chrono::microseconds(2);

double TimePerByte(std::size_t bytes, std::chrono::nanoseconds time) {
  return static_cast<double>(time.count()) / static_cast<double>(bytes);
}

}  // namespace

void LinkSampler::OnFinished(std::size_t bytes, const Times& times) {
  const TimePoint began = std::max(times.posted, times.first_received);
  burst_.began = burst_.operations == 0 ? began : std::min(burst_.began, began);
  burst_.finished = std::max(burst_.finished, times.finished);
  burst_.last = times;
  burst_.bytes += bytes;
  ++burst_.operations;
  EndOne();
}

std::optional<std::chrono::nanoseconds> LinkSampler::TimeAlone(const Burst& burst) const {
  const Times& times = burst.last;
  if (IsSmall(burst.bytes)) {
    if (times.first_received < times.posted + kSentAhead) return std::nullopt;
    return times.finished - times.posted;
  }
  // Each node gets so many messages, one behind another; the first came before the clock started.
  const std::size_t block = burst.bytes / static_cast<std::size_t>(std::max(link_.node_count, 1));
  const std::size_t chunks = std::max<std::size_t>((block + chunk_bytes_ - 1) / chunk_bytes_, 1);
  const auto messages =
      static_cast<std::int64_t>(chunks) * std::max(link_.ShapeOf(burst.bytes).rounds, 2);
  return (burst.finished - burst.began) * messages / (messages - 1);
}

void LinkSampler::OnSpoiled() {
  burst_.spoiled = true;
  EndOne();
}

void LinkSampler::EndOne() {
  if (in_flight_ > 0) --in_flight_;
  if (in_flight_ > 0) return;
  const Burst burst = burst_;
  burst_ = Burst();
  if (burst.spoiled || burst.bytes == 0) return;
  if (burst.operations == 1) {
    if (const auto time = TimeAlone(burst); time.has_value())
      Add({burst.bytes, *time, burst.finished});
  } else if (burst.bytes / burst.operations >= kLargeBytes) {
    Add({burst.bytes, burst.finished - burst.began, burst.finished});
  }
}

void LinkSampler::Add(Sample sample) {
  if (sample.time.count() <= 0) return;
  SizeClass& entry = classes_[static_cast<std::size_t>(std::bit_width(sample.bytes) - 1)];
  ++sample_count_;
  if (!IsSmall(sample.bytes)) {
    ++ring_count_;
    last_ring_at_ = sample.at;
  }
  sample.ring_count = ring_count_;
  if (entry.samples.size() < kKept) {
    entry.samples.push_back(sample);
    return;
  }
  entry.samples[entry.next] = sample;
  entry.next = (entry.next + 1) % kKept;
}

bool LinkSampler::IsStale(const Sample& sample) const {
  return ring_count_ - sample.ring_count >= kStaleSamples &&
         last_ring_at_ - sample.at >= kStaleTime;
}

std::vector<LinkObservation> LinkSampler::Observations() const {
  std::vector<LinkObservation> observations;
  for (const SizeClass& entry : classes_) {
    if (entry.samples.empty()) continue;
    // By time per byte, since sizes differ within a class.
    std::vector<Sample> samples = entry.samples;
    const bool small = IsSmall(samples.front().bytes);
    if (!small) std::erase_if(samples, [this](const Sample& sample) { return IsStale(sample); });
    if (samples.empty()) continue;
    std::size_t percentile = small ? kSmallPercentile : kRingPercentile;
    if (samples.size() < kNeeded) {
      std::erase_if(samples, [](const Sample& sample) {
        return sample.bytes < kLargeBytes || sample.time < kTellingTime;
      });
      if (samples.empty()) continue;
      percentile = 0;
    }
    const auto chosen =
        samples.begin() + static_cast<std::ptrdiff_t>(samples.size() * percentile / 100);
    std::nth_element(samples.begin(), chosen, samples.end(), [](const Sample& a, const Sample& b) {
      return TimePerByte(a.bytes, a.time) < TimePerByte(b.bytes, b.time);
    });
    observations.push_back(
        {chosen->bytes, chosen->time, static_cast<std::uint32_t>(samples.size())});
  }
  return observations;
}

}  // namespace ringd
