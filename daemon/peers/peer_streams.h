// The streams of a SocketPeerNetwork and the thread that reads them.
//
// Internal to daemon/peers.
#ifndef RINGD_DAEMON_PEERS_PEER_STREAMS_H_
#define RINGD_DAEMON_PEERS_PEER_STREAMS_H_

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "daemon/peers/last_bytes.h"
#include "daemon/peers/message_holds.h"
#include "daemon/peers/peer_network.h"
#include "daemon/peers/peer_stream.h"
#include "daemon/peers/socket_peer_network.h"
#include "proto/base/clock.h"
#include "proto/base/command_queue.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"

namespace ringd {

// Thread safety: any thread, but Start and Stop one. Events and `ended` are called on the thread
//   ringd-peers, without a lock.
class PeerStreams {
 public:
  struct Origin {
    // Of a stream that was opened to here: which job its node came for, and who it is.
    ExpectationId job;
    std::string from;
    uid_t user = 0;
    // Of one that was opened here: whose door it leads to.
    std::string host_port;
    bool opened_here = false;
    // Called when its connection has been closed, before its last event.
    std::function<void()> ended;
  };

  PeerStreams(const SocketPeerNetworkOptions& options, UniqueFd epoll);
  ~PeerStreams() { Stop(); }

  void Start();
  // Nothing is called any more; what is left ends without a word.
  void Stop();

  void SetEvents(PeerEvents* events) ABSL_LOCKS_EXCLUDED(mutex_);
  // Without a connection yet. Nothing if there is nobody to tell, or after Refuse().
  bool Add(StreamId id, Origin origin) ABSL_LOCKS_EXCLUDED(mutex_);
  StreamId NewId() ABSL_LOCKS_EXCLUDED(mutex_);
  // The stream goes on over this connection, unless it has ended meanwhile.
  void Connect(StreamId id, UniqueFd socket);
  // There will be no connection: its last event, unless it has had one.
  void EndUnconnected(StreamId id, const absl::Status& why);

  // Frames of streams that were opened here, or to here; others are dropped.
  void Send(StreamId id, bool opened_here, std::string frame);
  void Close(StreamId id, const absl::Status& reason);

  // No stream comes any more. Which there are.
  std::vector<StreamId> Refuse() ABSL_LOCKS_EXCLUDED(mutex_);
  // False: some had not ended by then.
  bool WaitUntilEmpty(Clock::time_point deadline) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends all at once.
  void CutAll();

 private:
  struct Entry {
    StreamId id;
    Origin origin;
    std::shared_ptr<PeerStream> stream;
    std::shared_ptr<MessageHolds> holds;
    LastBytes last_bytes;
  };

  // ---- the thread
  void Run();
  int MillisecondsToSleep(Clock::time_point now) const;
  void HandleEvents(std::size_t count);
  void ReadInTurns(Clock::time_point now);
  // True: there is nothing to read now.
  bool Read(Entry& entry, Clock::time_point now);
  // False: the stream has ended.
  bool Take(Entry& entry, PeerFrameKind kind, std::span<const std::byte> payload);
  template <typename Message>
  bool Deliver(Entry& entry, std::span<const std::byte> payload);
  void LookAfterAll(Clock::time_point now);
  void ForgiveAll(Clock::duration gap);
  // Its last event, unless it has had one: with the reason for which it was closed here, if it was.
  void End(const Entry& entry, const absl::Status& otherwise);
  // The same for a connection that is lost, for this cause.
  void Lose(const Entry& entry, const std::string& cause);

  std::shared_ptr<Entry> Find(StreamId id) ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<std::shared_ptr<Entry>> All() ABSL_LOCKS_EXCLUDED(mutex_);
  PeerEvents* events() ABSL_LOCKS_EXCLUDED(mutex_) {
    const MutexLock lock(mutex_);
    return events_;
  }

  static constexpr std::size_t kScratchBytes = std::size_t{64} << 10;
  static constexpr std::size_t kMaxEvents = 64;

  const SocketPeerNetworkOptions options_;
  const std::shared_ptr<CommandQueue> commands_ = std::make_shared<CommandQueue>();
  const UniqueFd epoll_;
  std::thread thread_;

  Mutex mutex_;
  CondVar emptied_;
  PeerEvents* events_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool refusing_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<StreamId, std::shared_ptr<Entry>> entries_ ABSL_GUARDED_BY(mutex_);
  PeerBudgets budgets_ ABSL_GUARDED_BY(mutex_);

  // The thread's own.
  bool stopping_ = false;
  std::set<StreamId> readable_;
  std::set<StreamId> full_;  // not read until messages have been dealt with
  Clock::time_point next_look_ = Clock::time_point::max();
  std::vector<std::byte> scratch_ = std::vector<std::byte>(kScratchBytes);
};

}  // namespace ringd

#endif  // RINGD_DAEMON_PEERS_PEER_STREAMS_H_
