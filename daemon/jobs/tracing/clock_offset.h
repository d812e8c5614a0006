// How far the coordinator's clock is from this node's, by pings.
#ifndef RINGD_DAEMON_JOBS_TRACING_CLOCK_OFFSET_H_
#define RINGD_DAEMON_JOBS_TRACING_CLOCK_OFFSET_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace ringd {

// The coordinator read its clock at some moment between a ping and its answer: so the error is at
// most half the round trip, and of several pings the one with the shortest counts. Clocks drift
// apart, so that an older ping counts less.
//
// Thread safety: none; the progress thread owns it.
class ClockOffset {
 public:
  struct Estimate {
    std::int64_t offset_ns = 0;  // to be added to this node's clock
    std::uint64_t uncertainty_ns = 0;
  };

  // A ping that left and came back at these times of this node's clock. One that came back before
  // it left counts for nothing: the times are what another process has sent back.
  void Add(std::uint64_t sent_ns, std::uint64_t coordinator_ns, std::uint64_t received_ns) noexcept;

  // Nothing: there has been no ping.
  std::optional<Estimate> Best(std::uint64_t now_ns) const noexcept;

  // True if there are too few pings of the last seconds to rely on the best.
  bool WantsMore(std::uint64_t now_ns) const noexcept;

  // Pings in a row.
  static constexpr std::size_t kPings = 8;

 private:
  struct Ping {
    std::uint64_t received_ns = 0;  // 0: none
    std::int64_t offset_ns = 0;
    std::uint64_t uncertainty_ns = 0;
  };

  std::array<Ping, 2 * kPings> pings_;
  std::size_t next_ = 0;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_TRACING_CLOCK_OFFSET_H_
