#include "daemon/schedule/link_sampler.h"

#include <algorithm>
#include <bit>

namespace ringd {
namespace {

// The fifth of the samples that were least disturbed are faster than what speaks for a class.
constexpr std::size_t kPercentile = 20;

double TimePerByte(std::size_t bytes, std::chrono::nanoseconds time) {
  return static_cast<double>(time.count()) / static_cast<double>(bytes);
}

}  // namespace

void LinkSampler::OnFinished(std::size_t bytes, TimePoint began, TimePoint finished) {
  burst_.began = burst_.operations == 0 ? began : std::min(burst_.began, began);
  burst_.finished = std::max(burst_.finished, finished);
  burst_.bytes += bytes;
  ++burst_.operations;
  EndOne();
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
  if (burst.spoiled || burst.bytes == 0 || burst.finished <= burst.began) return;
  if (burst.operations > 1 && burst.bytes / burst.operations < kLargeBytes) return;
  Add({burst.bytes, burst.finished - burst.began});
}

void LinkSampler::Add(Sample sample) {
  SizeClass& entry = classes_[static_cast<std::size_t>(std::bit_width(sample.bytes) - 1)];
  ++sample_count_;
  if (entry.samples.size() < kKept) {
    entry.samples.push_back(sample);
    return;
  }
  entry.samples[entry.next] = sample;
  entry.next = (entry.next + 1) % kKept;
}

std::vector<LinkObservation> LinkSampler::Observations() const {
  std::vector<LinkObservation> observations;
  for (const SizeClass& entry : classes_) {
    if (entry.samples.size() < kNeeded) continue;
    // By time per byte, since sizes differ within a class.
    std::vector<Sample> samples = entry.samples;
    const auto chosen =
        samples.begin() + static_cast<std::ptrdiff_t>(samples.size() * kPercentile / 100);
    std::nth_element(samples.begin(), chosen, samples.end(), [](const Sample& a, const Sample& b) {
      return TimePerByte(a.bytes, a.time) < TimePerByte(b.bytes, b.time);
    });
    observations.push_back(
        {chosen->bytes, chosen->time, static_cast<std::uint32_t>(samples.size())});
  }
  return observations;
}

}  // namespace ringd
