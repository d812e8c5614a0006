// The way to an engine, for those who may have something to tell it when it has gone already.
#ifndef RINGD_DAEMON_SUPERVISOR_ENGINE_OUTLET_H_
#define RINGD_DAEMON_SUPERVISOR_ENGINE_OUTLET_H_

#include <functional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"
#include "proto/rpc/engine_network.pb.h"

namespace ringd {

// Thread safety: any thread.
// Ownership: a socket that can't be sent is closed.
class EngineOutlet {
 public:
  using Send = std::function<void(v1::EngineNetworkEvent, std::vector<UniqueFd>)>;

  explicit EngineOutlet(Send send) : send_(std::move(send)) {}

  // One after the other. `socket`: may be none.
  void Tell(v1::EngineNetworkEvent event, UniqueFd socket) ABSL_LOCKS_EXCLUDED(mutex_) {
    std::vector<UniqueFd> fds;
    if (socket.valid()) fds.push_back(std::move(socket));
    const MutexLock lock(mutex_);
    if (send_ != nullptr) send_(std::move(event), std::move(fds));
  }
  // What is being sent has been when it returns, and nothing more will be.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_) {
    Send closed;  // what it holds goes without the lock
    const MutexLock lock(mutex_);
    std::swap(closed, send_);
  }

 private:
  Mutex mutex_;
  Send send_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_ENGINE_OUTLET_H_
