// Trainers that have attached and not joined a job yet.
#ifndef RINGD_DAEMON_SUPERVISOR_LOBBY_H_
#define RINGD_DAEMON_SUPERVISOR_LOBBY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/sessions/session_resources.h"
#include "proto/base/mutex.h"
#include "proto/base/waking_epoll.h"

namespace ringd {

// Holds what the attach handshake has made until the trainer joins or goes. Nothing here reads what
// a trainer writes, and those who wait cost the engine nothing.
//
// One thread, ringd-lobby, sees who goes. It also closes what such a trainer had, which may take as
// long as Nudges lets it; nobody else waits for that.
//
// Thread safety: any thread, but Stop one.
class Lobby {
 public:
  //   What the kernel says.
  static absl::StatusOr<std::unique_ptr<Lobby>> Create();
  ~Lobby();  // Stop, without a word
  Lobby(const Lobby&) = delete;
  Lobby& operator=(const Lobby&) = delete;

  void Add(std::unique_ptr<SessionResources> session) ABSL_LOCKS_EXCLUDED(mutex_);
  // Null: nobody here has this token.
  std::unique_ptr<SessionResources> Take(absl::string_view token) ABSL_LOCKS_EXCLUDED(mutex_);
  bool Has(absl::string_view token) ABSL_LOCKS_EXCLUDED(mutex_);
  std::size_t size() const noexcept { return size_.load(std::memory_order_relaxed); }

  // Ends all sessions that are here, or come later, and tells them why. Idempotent.
  void Stop(absl::string_view why) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Of a session's descriptors those that tell its end.
  enum class Sign : std::uint8_t { kLifeline, kProcess };

  explicit Lobby(WakingEpoll epoll);
  void Run();
  void Watch(const SessionResources& session) noexcept;
  std::unique_ptr<SessionResources> TakeLocked(SessionId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const WakingEpoll epoll_;  // woken by Stop
  Mutex mutex_;
  std::map<SessionId, std::unique_ptr<SessionResources>> sessions_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<std::string, SessionId> tokens_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::string why_stopped_ ABSL_GUARDED_BY(mutex_);
  std::atomic<std::size_t> size_{0};  // relaxed: a number
  std::thread thread_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_LOBBY_H_
