// What a communicator's operations take on the wire, and when that is worth telling the
// coordinator.
#ifndef RINGD_DAEMON_LANES_WIRE_WIRE_METER_H_
#define RINGD_DAEMON_LANES_WIRE_WIRE_METER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "backends/collective_request.h"
#include "daemon/lanes/channel_time.h"
#include "daemon/schedule/link/link_sampler.h"
#include "daemon/schedule/protocol/messages.h"
#include "proto/base/clock.h"

namespace ringd {

// Reports go out between steps, when nothing is under way (so that a new plan which follows from
// one is likely to come between steps, too). After each change of the schedule the first comes
// after a quarter of a second, the next ones ever more seldom; from the seventh on only what has
// changed is told, so that in the steady state nothing is sent.
//
// Thread safety: none; the progress thread owns it.
class WireMeter {
 public:
  // See LinkSampler.
  WireMeter(const LinkModel& link, std::size_t chunk_bytes) : sampler_(link, chunk_bytes) {}

  // Measures nothing: nobody plans by it.
  void TurnOff() noexcept { off_ = true; }

  void OnPosted() noexcept {
    if (!off_) sampler_.OnPosted();
  }
  // Requirement: the operation was posted. `kind` and `bytes` are what was asked of the backend.
  void OnCompleted(CollectiveKind kind, std::size_t bytes, const Completion& completion);
  // Of an operation of which OnCompleted() was told last in its channel: the ranks had the result
  // so much later than the wire's end.
  void OnInPlace(std::uint32_t channel, std::chrono::nanoseconds later);
  // A posted operation that nobody waits for any more has ended.
  void OnAbandoned() {
    if (!off_) sampler_.OnSpoiled();
  }
  void Forget(std::uint32_t channel) { channels_.erase(channel); }

  ChannelTime TimeOf(std::uint32_t channel) const;

  // True if a report should be made now. `idle`: nothing is under way here. `epoch`: of the
  // schedule.
  bool IsDue(bool idle, Epoch epoch, Clock::time_point now) const noexcept;
  // The link's part of a report, empty if it has not changed. `epoch` as for IsDue.
  std::vector<LinkObservation> TakeReport(Epoch epoch, Clock::time_point now);

 private:
  bool off_ = false;
  LinkSampler sampler_;
  std::unordered_map<std::uint32_t, ChannelTime> channels_;

  std::vector<LinkObservation> reported_;
  std::uint64_t reported_samples_ = 0;
  Epoch reported_epoch_ = 0;
  std::optional<Clock::time_point> last_report_;  // or the first completion
  std::chrono::nanoseconds interval_ = std::chrono::milliseconds(250);
};

}  // namespace ringd

#endif  // RINGD_DAEMON_LANES_WIRE_WIRE_METER_H_
