// The attach connection after the attach: ringd's notices, and the certain sign of its death.
#ifndef RINGD_CLIENT_CORE_ATTACH_LIFELINE_H_
#define RINGD_CLIENT_CORE_ATTACH_LIFELINE_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "client/core/attach/ringd_watch.h"
#include "proto/attach/handshake.h"
#include "proto/base/clock.h"
#include "proto/base/unique_fd.h"

namespace ringd::client {

// Runs the thread "ringd-notices", which sleeps in poll(2) until ringd speaks or its end of the
// connection closes; and wakes once a second for a look at whether ringd is alive.
//
// Thread safety: Start, then Stop, each once, from one thread. The callbacks run on the thread.
class Lifeline {
 public:
  struct Callbacks {
    std::function<void(const std::string& text)> on_warning;
    std::function<void(const std::string& text)> on_failure;
    std::function<void(const std::string& text)> on_session_ended;
    // Memory of a one-node job. The descriptor is invalid if none came.
    std::function<void(const JobSegmentNotice& notice, UniqueFd fd)> on_job_segment;
    std::function<void(const MemberArenaNotice& notice, UniqueFd fd)> on_member_arena;
    // Of a job with a rank exchange; likewise.
    std::function<void(const RankExchangeNotice& notice, UniqueFd fd)> on_rank_exchange;
    std::function<void(const RankExchangeConnectionNotice& notice, UniqueFd fd)>
        on_rank_exchange_connection;
    // Device memory that OpenDevice has asked for; likewise.
    std::function<void(const DeviceSlabNotice& notice, UniqueFd fd)> on_device_slab;
    // The engine's channel, by which it says what to launch; likewise.
    std::function<void(UniqueFd fd)> on_device_launch;
    // Called every kLookInterval.
    std::function<void(Clock::time_point now)> on_look;
    // ringd has closed the connection, or speaks nonsense on it. The last callback.
    std::function<void()> on_hang_up;
  };

  static constexpr std::chrono::milliseconds kLookInterval = RingdWatch::kInterval;

  explicit Lifeline(UniqueFd connection);
  ~Lifeline();
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;

  absl::Status Start(Callbacks callbacks);
  // Ends the thread and waits for it; afterwards no callback runs. Idempotent.
  void Stop();
  // Ends the connection, which tells ringd that this process is done. After Stop. The descriptor
  // stays, so that its number means nothing else while a fork handler may close it.
  void Hang() noexcept;

  int fd() const noexcept { return connection_.get(); }

 private:
  void Run();
  // Reads what is there and handles whole notices. False when the connection is at its end.
  bool Receive();
  bool HandleBuffered();
  bool HandleNotice(NoticeKind kind, const std::string& text);
  UniqueFd NextFd();

  UniqueFd connection_;
  UniqueFd stop_;
  Callbacks callbacks_;
  std::vector<char> buffer_;  // of the thread: bytes not yet handled
  std::deque<UniqueFd> fds_;  // of the thread: descriptors in the order of their notices
  std::thread thread_;
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_ATTACH_LIFELINE_H_
