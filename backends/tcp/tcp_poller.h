// What the kernel tells of the connections of a transport.
#ifndef RINGD_BACKENDS_TCP_TCP_POLLER_H_
#define RINGD_BACKENDS_TCP_TCP_POLLER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/unique_fd.h"

namespace ringd {

class TcpConnection;

// Has a descriptor that the poller watches.
class Pollable {
 public:
  // `events` as epoll's. Called from inside TcpPoller::Poll(); only notes what has happened.
  virtual void OnEvents(std::uint32_t events) noexcept = 0;

 protected:
  ~Pollable() = default;
};

// One epoll instance, and the list of those connections that have something to do.
//
// Thread safety: the progress thread only.
// Ownership: of the epoll instance; what is watched is others', and must be forgotten before it
//   goes.
// Invariant: a connection that can be read, or that can be written and waits to be, is on the list,
//   or the kernel will report it.
class TcpPoller {
 public:
  TcpPoller();
  TcpPoller(const TcpPoller&) = delete;
  TcpPoller& operator=(const TcpPoller&) = delete;

  // Readable while there is something that Poll() would report.
  int fd() const noexcept { return epoll_.get(); }
  bool valid() const noexcept { return epoll_.valid(); }

  // Watches for reading, as long as it can be read.
  absl::Status Watch(int fd, Pollable& what);
  // Watches for changes in either direction.
  absl::Status WatchConnection(int fd, TcpConnection& connection);
  // Neither watched nor on the list from now on.
  void Forget(int fd, TcpConnection& connection) noexcept;

  // Asks the kernel, without waiting; returns the number of events.
  std::size_t Poll() noexcept;

  // Puts it on the list, if it is not there. Requirement: it is watched.
  void AddReady(TcpConnection& connection) noexcept;
  bool has_ready() const noexcept { return !ready_.empty(); }

  // Has read a part of a frame, of which more is to come. Requirement: it is watched.
  void NotePartial(TcpConnection& connection) noexcept;
  // The thread is about to sleep: a frame that has come in part is to wake it when it is whole.
  void AwaitWholeFrames() noexcept;

  // Takes the list and calls `handle` for each connection. Those that are put on it meanwhile stay
  // for the next time.
  template <typename Handle>
  void ForEachReady(Handle handle) noexcept {
    handled_.swap(ready_);
    // Connections may go meanwhile, and come: by index.
    for (std::size_t i = 0; i < handled_.size(); ++i) {
      if (TcpConnection* const connection = handled_[i]) {
        LeaveList(*connection);
        handle(*connection);
      }
    }
    handled_.clear();
  }

 private:
  static constexpr int kEventsAtOnce = 64;

  static void LeaveList(TcpConnection& connection) noexcept;

  UniqueFd epoll_;
  std::size_t watched_ = 0;  // connections
  std::vector<TcpConnection*> ready_;
  std::vector<TcpConnection*> handled_;  // null: has gone
  std::vector<TcpConnection*> partial_;  // since the last sleep
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_TCP_TCP_POLLER_H_
