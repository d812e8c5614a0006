#include "daemon/lanes/wire/wire_meter.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "proto/operations/operation_traits.h"

namespace ringd {
namespace {

constexpr std::chrono::nanoseconds kFirstInterval = std::chrono::milliseconds(250);
constexpr std::chrono::nanoseconds kLongestInterval = std::chrono::seconds(8);
// Occurrences that a channel's mean is over in the long run.
constexpr std::uint64_t kMemory = 8;

// Whether an observation tells something that the last report did not.
bool IsNews(const LinkObservation& seen, const std::vector<LinkObservation>& reported) {
  const auto rate = [](const LinkObservation& entry) {
    return static_cast<double>(entry.time.count()) / static_cast<double>(entry.bytes);
  };
  return std::none_of(reported.begin(), reported.end(), [&](const LinkObservation& told) {
    return std::bit_width(told.bytes) == std::bit_width(seen.bytes) &&
           std::abs(rate(seen) - rate(told)) < 0.1 * rate(told);
  });
}

}  // namespace

void WireMeter::OnCompleted(CollectiveKind kind, std::size_t bytes, const Completion& completion) {
  if (off_) return;
  const CollectiveTimes& times = completion.times;
  if (!last_report_.has_value()) last_report_ = times.finished;
  // What is measured are all-reduces: the model knows no other shape.
  if (completion.outcome != CollectiveOutcome::kDone || !TraitsOf(kind).CombinesForAll() ||
      bytes == 0) {
    sampler_.OnSpoiled();
    return;
  }
  sampler_.OnFinished(bytes, {times.posted, times.first_received, times.finished});
  if (completion.id.channel == 0) return;
  ChannelTime& channel = channels_[completion.id.channel];
  ++channel.count;
  const auto weight = static_cast<std::int64_t>(std::min(channel.count, kMemory));
  // Until a message of another node comes it may be that node which is late, not the link.
  const auto began = std::max(times.posted, times.first_received);
  channel.waited += (began - times.posted - channel.waited) / weight;
  channel.wire += (times.finished - began - channel.wire) / weight;
}

void WireMeter::OnInPlace(std::uint32_t channel, std::chrono::nanoseconds later) {
  const auto found = channels_.find(channel);
  if (found == channels_.end()) return;
  // As if OnCompleted() had known: a mean of sums is the sum of means.
  const auto weight = static_cast<std::int64_t>(std::min(found->second.count, kMemory));
  found->second.wire += later / weight;
}

ChannelTime WireMeter::TimeOf(std::uint32_t channel) const {
  const auto found = channels_.find(channel);
  return found == channels_.end() ? ChannelTime() : found->second;
}

bool WireMeter::IsDue(bool idle, Epoch epoch, Clock::time_point now) const noexcept {
  if (!last_report_.has_value() || sampler_.sample_count() == reported_samples_) return false;
  const auto interval = epoch == reported_epoch_ ? interval_ : kFirstInterval;
  // A job that is never idle here reports all the same.
  return now - *last_report_ >= (idle ? interval : 2 * interval);
}

std::vector<LinkObservation> WireMeter::TakeReport(Epoch epoch, Clock::time_point now) {
  interval_ = epoch == reported_epoch_ ? std::min(2 * interval_, kLongestInterval) : kFirstInterval;
  last_report_ = now;
  reported_epoch_ = epoch;
  reported_samples_ = sampler_.sample_count();
  std::vector<LinkObservation> seen = sampler_.Observations();
  // While all is young there is something to tell each time: whatever follows from it may wait for
  // it.
  const bool young = interval_ < kLongestInterval;
  // That a size counts no more is news, too.
  const bool news = young || seen.size() != reported_.size() ||
                    std::any_of(seen.begin(), seen.end(), [this](const LinkObservation& entry) {
                      return IsNews(entry, reported_);
                    });
  if (!news) return {};
  reported_ = seen;
  return seen;
}

}  // namespace ringd
