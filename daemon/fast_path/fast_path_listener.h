// Where other ringds connect for the fast path: one per ringd, for all jobs.
#ifndef RINGD_DAEMON_FAST_PATH_FAST_PATH_LISTENER_H_
#define RINGD_DAEMON_FAST_PATH_FAST_PATH_LISTENER_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/congestion_control.h"
#include "daemon/logging/log_limiter.h"
#include "proto/base/clock.h"
#include "proto/base/unique_fd.h"
#include "proto/fast_path/fast_path_message.h"

namespace ringd {

// Accepts connections, has each say its hello, and keeps it until the job asks for it (TakeArrivals): another node's
// ringd may be faster than this one. A job's set-up also has its own sockets watched here, so that the engine has
// one descriptor to sleep on.
//
// Thread safety: none; the engine thread owns it.
// Ownership: owns the socket, and connections until they are taken.
// Trust: anybody can connect. At most kMostStrangers at a time, each for kHelloPatience; whoever can show no token is hung
//   up on. Nothing here blocks.
class FastPathListener {
 public:
  static constexpr std::size_t kMostStrangers = 64;
  static constexpr std::chrono::seconds kHelloPatience{2};

  // Listens on `host`, which is numeric, on a port that the kernel chooses.
  //   What the kernel says.
  static absl::StatusOr<std::unique_ptr<FastPathListener>> Open(
      const std::string& host, CongestionControl congestion_control);

  // "host:port".
  const std::string& address() const noexcept { return address_; }
  const CongestionControl& congestion_control() const noexcept { return congestion_control_; }
  // Readable when Advance has something to do, or when something happened to a watched descriptor.
  int event_fd() const noexcept { return epoll_.get(); }
  // True while somebody's time runs: call Advance at the latest when it is over.
  bool NeedsTicks() const noexcept { return !strangers_.empty() || paused_; }

  // Takes in who has come and what they have said, and drops those whose time is over.
  void Advance(Clock::time_point now);

  struct Arrival {
    FastPathHello hello;  // magic and version are right; the rest is for the job to check
    UniqueFd connection;  // non-blocking
    std::string from;     // for the log
  };
  // Hands over those that name this job.
  std::vector<Arrival> TakeArrivals(std::uint64_t wire_id);

  // Wakes the engine when `fd` can be read, or, if `writable`, written. Unwatch it before it is closed or
  // handed over.
  void Watch(int fd, bool writable);
  void Unwatch(int fd);

 private:
  struct Stranger {
    UniqueFd connection;
    std::string from;
    Clock::time_point since;
    std::array<std::byte, sizeof(FastPathHello)> bytes{};
    std::size_t filled = 0;

    bool whole() const noexcept { return filled == bytes.size(); }
    FastPathHello hello() const noexcept;
  };

  FastPathListener(UniqueFd socket, UniqueFd epoll, std::string address,
                   CongestionControl congestion_control);

  void Accept(Clock::time_point now);
  absl::Status Listen(Stranger& stranger) const;
  void LogDropped(const Stranger& stranger, absl::string_view why, Clock::time_point now);

  UniqueFd socket_;
  UniqueFd epoll_;
  const std::string address_;
  const CongestionControl congestion_control_;
  std::list<Stranger> strangers_;
  bool paused_ = false;  // no more strangers are accepted for now
  LogLimiter log_limiter_{10, std::chrono::minutes(1)};
};

}  // namespace ringd

#endif  // RINGD_DAEMON_FAST_PATH_FAST_PATH_LISTENER_H_
