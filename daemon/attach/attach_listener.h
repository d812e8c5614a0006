// Serves ringd's Unix socket: makes sessions for trainers and hands gRPC connections on.
#ifndef RINGD_DAEMON_ATTACH_ATTACH_LISTENER_H_
#define RINGD_DAEMON_ATTACH_ATTACH_LISTENER_H_

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/attach/admission.h"
#include "daemon/attach/pending_connection.h"
#include "daemon/attach/session_factory.h"
#include "daemon/attach/user_questions.h"
#include "daemon/config/config.h"
#include "daemon/logging/log_limiter.h"
#include "daemon/sessions/session_resources.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"
#include "proto/base/waking_epoll.h"
#include "proto/types/ids.h"

namespace ringd {

// What the kernel and the settings say of whoever is at the other end of a connection.
struct AdmittedUser {
  uid_t uid = 0;
  bool is_operator = false;
};

// All are called on the listener's thread and must return soon.
struct AttachCallbacks {
  // A session exists, its client knows nothing of it yet. From here on its token is known.
  // If the client turns out to have gone, its lifeline hangs up as it would at any later time.
  std::function<void(std::unique_ptr<SessionResources>)> on_attached;
  // A connected, non-blocking socket whose first bytes are or will be gRPC's, and the kernel's word
  // on whose it is. What is returned is kept until the connection has ended; sessions' own, too.
  std::function<std::shared_ptr<const void>(UniqueFd, const AdmittedUser&)> on_grpc_connection;
  // The same, of a user who is not admitted: for a server that says so to every call.
  std::function<void(UniqueFd)> on_refused_grpc_connection;
  // An attach was refused; the client has been told why.
  std::function<void()> on_refused;
  // True if that process is an engine of ours, or was one that has ended after `since`. One that a
  // rank has taken over has ringd's own user, and would be an operator: its connections are closed
  // before a word, also if it has given one away and ended before it was accepted. An engine starts
  // no process, so its pid is enough (daemon/engine_process/system_call_wall.h). Whoever connected
  // before his pid became an engine's is none.
  std::function<bool(pid_t, Clock::time_point since)> is_engine = [](pid_t, Clock::time_point) {
    return false;
  };
  // True: attaches are refused with kFailedPrecondition. gRPC connections are served all the same.
  std::function<bool()> is_draining = [] { return false; };
  // Asks the user database; alone on a thread that may wait for it.
  UserQuestions::Ask ask_user = [](const Admission& admission, const PeerCredentials& peer) {
    return admission.Ask(peer);
  };
};

// One thread waits for connections and reads what they begin with. Nobody can hold it up:
// handshakes that are not done are kept aside without blocking, for handshake_timeout at most. A
// user who has too many loses the oldest; if there are too many of all, that is the user who has
// most, and root last. Nor can the user database: who is not known at sight waits for it aside,
// twice as long, and others go on.
//
// Thread safety: admission, Use and Stop from any thread.
// Ownership: owns the socket file, which is removed by Stop, and the connections until they are
//   handed on.
class AttachListener {
 public:
  // Handshakes under way at once.
  static constexpr std::size_t kMaxPending = 256;
  // Of one user other than root and ringd's own.
  static constexpr std::size_t kMaxPendingPerUser = kMaxPending / 4;
  // Connections of ringctl and the like that are open at once.
  static constexpr std::size_t kMaxGrpcConnections = 512;
  static constexpr std::size_t kMaxGrpcConnectionsPerUser = 16;
  // Of all of them, places that only root may take, and the most that users who are not admitted
  // may.
  static constexpr std::size_t kGrpcConnectionsKeptForRoot = 16;
  static constexpr std::size_t kMaxRefusedGrpcConnections = 64;

  //   kAlreadyExists: another process serves the socket. kInvalidArgument: see Admission. Otherwise
  //   what the socket's folder answers.
  static absl::StatusOr<std::unique_ptr<AttachListener>> Start(const Config& config,
                                                               AttachCallbacks callbacks);
  ~AttachListener();

  // Who is admitted. Never null; kept by whoever asks it, since another one may take its place
  // meanwhile.
  std::shared_ptr<Admission> admission() ABSL_LOCKS_EXCLUDED(admission_mutex_);
  // From now on this one, which was renewed from that, says who is admitted, who of them is an
  // operator, and how many trainers may be attached. Who is connected stays so.
  void Use(std::shared_ptr<Admission> renewed) ABSL_LOCKS_EXCLUDED(admission_mutex_);

  // Ends the thread and removes the socket file. Connections under way are closed. Idempotent.
  void Stop();

 private:
  // What stays of a gRPC connection after it was handed on: a second descriptor that tells its end.
  struct GrpcConnection {
    UniqueFd watch;
    uid_t uid = 0;
    bool admitted = false;
    std::shared_ptr<const void> served;
  };
  // The same of a session's. It ends when its trainer closes it or has ended: what that has forked
  // may have it open still. Until then it counts as one of the user's sessions, also when the
  // session itself is over, or a trainer that attaches again and again could have any number.
  struct SessionConnection {
    UniqueFd watch;
    UniqueFd process;  // may be invalid, as SessionResources::pidfd
    std::shared_ptr<const void> place;
    std::shared_ptr<const void> served;
  };
  // Keys of the epoll set: the two below, and a number for each connection in order of arrival.
  // That of a session's process is the next one after its connection's.
  static constexpr std::uint64_t kListenKey = 0;
  static constexpr std::uint64_t kWakeKey = 1;

  AttachListener(const Config& config, AttachCallbacks callbacks, Admission admission);
  absl::Status Open();
  void Run();

  void AcceptAll();
  void PauseAccepting(int error);
  void ResumeAccepting();
  void Add(UniqueFd socket);
  void DropOnePending(absl::string_view why);
  void Drop(std::map<std::uint64_t, PendingConnection>::iterator victim, absl::string_view why);
  void DropExpired();
  int MillisecondsToNextDeadline() const;
  void Advance(std::uint64_t key);
  // Serves it if its user is known, else keeps it aside.
  void ServeOrPark(std::map<std::uint64_t, PendingConnection>::iterator found,
                   PendingConnection::Progress wanted);
  void ServeParked();
  // A parked one whose time is over: serves it as far as its user is known.
  void EndWait(PendingConnection connection);
  void Serve(PendingConnection connection, PendingConnection::Progress wanted,
             const UserVerdict& verdict);
  std::optional<UserVerdict> Judge(const PeerCredentials& peer);
  void ServeGrpc(PendingConnection connection, const UserVerdict& verdict);
  // These two: false if there is none of this key.
  bool EndGrpcConnection(std::uint64_t key);
  bool EndSessionConnection(std::uint64_t key);
  void ServeAttach(PendingConnection connection, const UserVerdict& verdict);
  absl::Status TryAttach(PendingConnection& connection, const UserVerdict& verdict);
  absl::Status KeepSessionConnection(UniqueFd socket, const SessionResources& session,
                                     const AdmittedUser& user);
  absl::Status CheckGrpcLimits(uid_t uid) const;
  bool HasRoomForRefused() const;
  void LogConnection(absl::string_view what, const PeerCredentials& peer);

  const std::string path_;
  const mode_t mode_;
  const uid_t own_user_;
  const Clock::duration handshake_timeout_;
  const SessionSizes sizes_;
  const AttachCallbacks callbacks_;
  Mutex admission_mutex_;
  std::shared_ptr<Admission> admission_ ABSL_GUARDED_BY(admission_mutex_);  // never null

  UniqueFd listener_;
  WakingEpoll epoll_;  // woken by Stop, and by answers
  dev_t socket_device_ = 0;
  ino_t socket_inode_ = 0;

  // The thread's own.
  std::map<std::uint64_t, PendingConnection> pending_;  // in order of arrival, so of deadlines
  std::map<std::uint64_t, GrpcConnection> grpc_connections_;
  std::map<std::uint64_t, SessionConnection> session_connections_;
  std::uint64_t next_key_ = kWakeKey + 1;
  std::uint32_t next_session_ = 1;
  Clock::time_point accept_again_ = Clock::time_point::max();  // not max: accepting is paused
  // Nobody waited to be accepted then: whoever is accepted next has connected later.
  Clock::time_point queue_empty_at_;
  LogLimiter log_limiter_;
  LogLimiter accept_limiter_;

  std::atomic<bool> stopping_{false};  // relaxed: nothing else is published by it
  std::thread thread_;
  UserQuestions questions_;  // goes first: it wakes us
};

}  // namespace ringd

#endif  // RINGD_DAEMON_ATTACH_ATTACH_LISTENER_H_
