// What the door's thread shares with an engine's EngineNetwork, which may have gone already.
#ifndef RINGD_DAEMON_SUPERVISOR_ENGINE_CONNECTIONS_H_
#define RINGD_DAEMON_SUPERVISOR_ENGINE_CONNECTIONS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "daemon/peers/control_door.h"
#include "daemon/sessions/isolated_executor.h"
#include "daemon/supervisor/engine_places.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"
#include "proto/rpc/engine_network.pb.h"

namespace ringd {

// Thread safety: any thread.
// Ownership: shared. A socket that can't be sent any more is closed. Borrows `isolated`, which
//   makes all calls on sockets that the engine has, too: it could hold them up.
class EngineConnections {
 public:
  // The place is to be held until the engine has been sent what comes with it; null: it has none.
  using Send =
      std::function<void(v1::EngineNetworkEvent, std::vector<UniqueFd>, CountedPlaces::Place)>;
  using DialId = ControlDoor::DialId;

  // `places`: of its user.
  EngineConnections(Send send, std::shared_ptr<UserPlaces> places, IsolatedExecutor* isolated)
      : places_(std::move(places)), isolated_(isolated), send_(std::move(send)) {}
  ~EngineConnections();
  EngineConnections(const EngineConnections&) = delete;
  EngineConnections& operator=(const EngineConnections&) = delete;

  // One after the other. `socket`: may be none. `place`: its own.
  void Tell(v1::EngineNetworkEvent event, UniqueFd socket, CountedPlaces::Place place = nullptr)
      ABSL_LOCKS_EXCLUDED(sending_) {
    std::vector<UniqueFd> fds;
    if (socket.valid()) fds.push_back(std::move(socket));
    const MutexLock lock(sending_);
    if (send_ != nullptr) send_(std::move(event), std::move(fds), std::move(place));
  }

  // A control connection that it is handed: what is to be said on it if the engine ends. Forgets
  // those that have ended, and its oldest one if its user has no place left.
  void KeepControl(const UniqueFd& socket) ABSL_LOCKS_EXCLUDED(mutex_);
  // The engine has ended: says so, and why, on its control connections, and ends them: soon, and
  // elsewhere. Who takes nothing hears nothing.
  void SayLast(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);

  // For a connection that is to be sent to the engine, and is its user's; null: it can't be.
  CountedPlaces::Place TakeUnsent() { return places_->unsent.Take(); }
  // Counts a connection that was let in. False: the engine has gone.
  bool AddConnection() ABSL_LOCKS_EXCLUDED(mutex_) {
    const MutexLock lock(mutex_);
    if (!gone_) ++connections_;
    return !gone_;
  }
  // False: there is none.
  bool EndConnection() ABSL_LOCKS_EXCLUDED(mutex_) {
    const MutexLock lock(mutex_);
    if (connections_ == 0) return false;
    --connections_;
    return true;
  }

  bool HasConnections() ABSL_LOCKS_EXCLUDED(mutex_) {
    const MutexLock lock(mutex_);
    return connections_ > 0;
  }

  // The dial that the engine calls `number`. False: one of that number is under way.
  bool AddDial(std::uint64_t number, DialId id) ABSL_LOCKS_EXCLUDED(mutex_) {
    const MutexLock lock(mutex_);
    return dials_.try_emplace(number, id).second;
  }
  // Which it is; nothing if it has ended. From now on it has.
  std::optional<DialId> AbandonDial(std::uint64_t number) ABSL_LOCKS_EXCLUDED(mutex_) {
    const MutexLock lock(mutex_);
    const auto found = dials_.find(number);
    if (found == dials_.end()) return std::nullopt;
    const DialId id = found->second;
    dials_.erase(found);
    return id;
  }
  // False: it was abandoned before.
  bool EndDial(std::uint64_t number, DialId id) ABSL_LOCKS_EXCLUDED(mutex_) {
    const MutexLock lock(mutex_);
    const auto found = dials_.find(number);
    if (found == dials_.end() || found->second != id) return false;
    dials_.erase(found);
    return true;
  }

  struct Left {
    std::size_t connections = 0;
    std::vector<DialId> dials;
  };
  // The engine has gone: what is being sent has been when it returns, and nothing more will be.
  Left Leave() ABSL_LOCKS_EXCLUDED(mutex_, sending_) {
    Send closed;  // what it holds goes without the lock
    {
      const MutexLock lock(sending_);
      std::swap(closed, send_);
    }
    Left left;
    const MutexLock lock(mutex_);
    gone_ = true;
    left.connections = std::exchange(connections_, 0);
    for (const auto& [number, id] : dials_) left.dials.push_back(id);
    dials_.clear();
    return left;
  }

 private:
  struct Control {
    UniqueFd socket;  // a duplicate
    CountedPlaces::Place place;
  };

  void Discard(std::vector<Control> controls) const;

  const std::shared_ptr<UserPlaces> places_;
  IsolatedExecutor* const isolated_;
  Mutex sending_;
  Send send_ ABSL_GUARDED_BY(sending_);

  Mutex mutex_;
  std::vector<Control> controls_ ABSL_GUARDED_BY(mutex_);
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;
  std::size_t connections_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, DialId> dials_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_ENGINE_CONNECTIONS_H_
