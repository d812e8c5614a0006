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
#include "daemon/sessions/isolated_executor.h"
#include "daemon/sessions/session_resources.h"
#include "proto/base/mutex.h"
#include "proto/base/waking_epoll.h"

namespace ringd {

// Holds what the attach handshake has made until the trainer joins or goes. Nothing here reads what
// a trainer writes, and those who wait cost the engine nothing.
//
// One thread, ringd-lobby, sees who goes. What such a trainer had is closed elsewhere, which may
// take as long as he likes.
//
// Thread safety: any thread, but Stop one.
// Ownership: of the sessions. Borrows `isolated`, which closes them.
class Lobby {
 public:
  //   What the kernel says.
  static absl::StatusOr<std::unique_ptr<Lobby>> Create(IsolatedExecutor* isolated);
  ~Lobby();  // Stop, without a word
  Lobby(const Lobby&) = delete;
  Lobby& operator=(const Lobby&) = delete;

  void Add(std::unique_ptr<SessionResources> session) ABSL_LOCKS_EXCLUDED(mutex_);
  // Null: nobody here has this token. One that was taken counts as here until Settle: when it is
  // back, or somebody else's.
  std::unique_ptr<SessionResources> Take(absl::string_view token) ABSL_LOCKS_EXCLUDED(mutex_);
  void Settle() ABSL_LOCKS_EXCLUDED(mutex_);
  bool Has(absl::string_view token) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whoever sees no session here finds it where it has gone.
  std::size_t size() const noexcept { return size_.load(std::memory_order_acquire); }

  // Ends all sessions that are here, or come later, and tells them why. Idempotent.
  void Stop(absl::string_view why) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Of a session's descriptors those that tell its end.
  enum class Sign : std::uint8_t { kLifeline, kProcess };

  Lobby(WakingEpoll epoll, IsolatedExecutor* isolated);
  void Run();
  // Tells the trainer why.
  void End(std::unique_ptr<SessionResources> session, const std::string& why);
  void Watch(const SessionResources& session) noexcept;
  std::unique_ptr<SessionResources> TakeLocked(SessionId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const WakingEpoll epoll_;  // woken by Stop
  IsolatedExecutor* const isolated_;
  Mutex mutex_;
  std::map<SessionId, std::unique_ptr<SessionResources>> sessions_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<std::string, SessionId> tokens_ ABSL_GUARDED_BY(mutex_);
  std::size_t leaving_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::string why_stopped_ ABSL_GUARDED_BY(mutex_);
  std::atomic<std::size_t> size_{0};
  std::thread thread_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_LOBBY_H_
