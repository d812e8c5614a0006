// One engine, as the supervisor speaks to it: its process, the channel to it, the sessions that it
// was given, and the calls that wait for its answers.
#ifndef RINGD_DAEMON_SUPERVISOR_ENGINE_CLIENT_H_
#define RINGD_DAEMON_SUPERVISOR_ENGINE_CLIENT_H_

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
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/channel/channel_loop.h"
#include "daemon/engine/call_thread.h"
#include "daemon/engine/engine_activity.h"
#include "daemon/engine/pending_call.h"
#include "daemon/rpc/node_calls.h"
#include "daemon/sessions/isolated_executor.h"
#include "daemon/sessions/session_resources.h"
#include "daemon/supervisor/engine_network.h"
#include "daemon/supervisor/engine_process.h"
#include "daemon/supervisor/engine_reply.h"
#include "daemon/supervisor/line_roster.h"
#include "daemon/supervisor/user_accounts.h"
#include "proto/base/clock.h"
#include "proto/base/counted_places.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"
#include "proto/channel/channel.h"
#include "proto/rpc/engine.pb.h"

namespace ringd {

class EngineClient;

// What concerns more than one engine. Called on the channels' thread, without a lock.
class EngineOwner {
 public:
  virtual ~EngineOwner() = default;

  virtual void OnSessionEnded(EngineClient& engine, const std::string& token, bool for_cause) = 0;
  // Of its job's name: what the next job begins with that is coordinated here.
  virtual void OnGeneration(EngineClient& engine, std::uint32_t next) = 0;
  virtual void OnJobEnded(EngineClient& engine, const v1::EngineJobEnded& ended) = 0;
  virtual void OnKeep(EngineClient& engine, v1::EngineKeep keep) = 0;
  // It has nothing to do, and was given so many sessions so far.
  virtual void OnIdle(EngineClient& engine, std::uint64_t sessions) = 0;
  // Its channel has ended, or it has to be ended (why_ended): look at the process.
  virtual void OnEnding(EngineClient& engine) = 0;
};

// An engine is made with its channel; it takes orders at once, and carries them out when its
// process has been started. At first it stands ready for any job; Begin says for which one it is.
//
// Thread safety: any thread, but what says otherwise.
// Ownership: shared by the table and those who call. Borrows its parts.
// Trust: what comes from the engine is input. Sessions that it names are its own, its user and job
//   are what Begin says.
class EngineClient : public std::enable_shared_from_this<EngineClient> {
 public:
  // Frames that are coming, or whose callers have not been answered: one of the longest, and some
  // more. Beyond that the engine has to wait.
  static constexpr std::size_t kMostFrameBytes = std::size_t{96} << 20;
  // Events without a connection that it has not taken, more than one who takes them can ask for.
  // Beyond that it is ended.
  static constexpr std::size_t kMostEventBytes = std::size_t{8} << 20;
  // Of the channel's socket, so that all engines together have fewer connections in the kernel that
  // they have not taken than a process may have descriptors: the kernel would let nobody send more.
  static constexpr int kSocketBytes = 32 << 10;

  struct Order {
    v1::EngineCallKind kind = v1::ENGINE_CALL_UNKNOWN;
    Caller caller;
    std::string token;
    std::string request;  // serialised
    std::string job_key;  // of a join
  };
  // What an engine does: for the watchdog.
  struct Life {
    std::uint64_t heartbeat = 0;
    EngineActivity::Moment activity;
    Clock::time_point heard;  // when its last frame came
    bool is_unread = false;   // it has said more, which ringd has not come to yet
  };

  // What it uses of ringd's.
  struct Parts {
    ChannelLoop* loop = nullptr;
    CallThread* calls = nullptr;
    // Closes what trainers share.
    IsolatedExecutor* isolated = nullptr;
    EngineOwner* owner = nullptr;
  };

  // `number`: of the engine, unique for this ringd.
  //   What the kernel says.
  static absl::StatusOr<std::shared_ptr<EngineClient>> Create(std::uint64_t number,
                                                              const Parts& parts);
  ~EngineClient();

  // Starts the process. One thread, the one that reaps; once.
  absl::Status Spawn(const EngineProgram& program, const std::vector<std::string>& arguments);
  // Null before; for the thread that reaps.
  EngineProcess* process() const noexcept { return process_.get(); }

  // What an engine has of the node, until it has gone.
  struct Place {
    std::unique_ptr<LineRoster::Slot> slot;
    std::shared_ptr<UserAccount> account;
    std::shared_ptr<EngineNetwork> network;
  };
  // Says for whom it is, and starts the engine. Once, before anything else is ordered.
  //   What the kernel says; then End it.
  absl::Status Begin(v1::EngineStart start, Place place, const std::string& node_name)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // What it shares with its user's other engines; null before Begin and after Bury.
  std::shared_ptr<UserPlaces> user_places() ABSL_LOCKS_EXCLUDED(mutex_);
  // Of the next job of its name.
  void SetWeight(std::uint32_t weight) ABSL_LOCKS_EXCLUDED(mutex_);
  // Where the engine's network half sends what it has to say. `place`: of the descriptors.
  void SendNetworkEvent(v1::EngineNetworkEvent event, std::vector<UniqueFd> fds,
                        CountedPlaces::Place place);

  std::uint64_t number() const noexcept { return number_; }
  pid_t pid() const noexcept { return pid_.load(std::memory_order_relaxed); }
  // It serves a job. What follows is of Begin, and constant afterwards.
  bool begun() const noexcept { return begun_.load(std::memory_order_acquire); }
  uid_t uid() const noexcept { return start_.uid(); }
  const std::string& job_id() const noexcept { return start_.job_id(); }
  const v1::EngineStart& start() const noexcept { return start_; }
  // "the engine of job 'x' (pid N on node-a)".
  std::string Name() const;
  std::uint32_t jobs() const noexcept { return jobs_.load(std::memory_order_relaxed); }
  Life life() ABSL_LOCKS_EXCLUDED(mutex_);
  double began_unix_seconds() const noexcept { return began_unix_seconds_; }

  // Hands a session over. Its place stays taken until the engine says that it has ended.
  //   What the kernel says: then the session stays where it is. Why Bury was called: then it is
  //   gone.
  absl::Status GiveSession(std::unique_ptr<SessionResources>& given) ABSL_LOCKS_EXCLUDED(mutex_);
  std::uint64_t sessions_given() ABSL_LOCKS_EXCLUDED(mutex_);
  std::size_t sessions() ABSL_LOCKS_EXCLUDED(mutex_);
  // It has sessions, has had none yet, or other nodes are connected to it.
  bool IsUsed() ABSL_LOCKS_EXCLUDED(mutex_);

  // Puts a call to the engine. `patience`: after so long without an answer it ends with
  // kDeadlineExceeded; zero: it waits until the engine has ended, which itself has deadlines, and
  // is ended where it stands still for long (Engines). kResourceExhausted: the user's engines have
  // not taken as much of such calls as may wait. Answers come in the turn of this caller's calls to
  // engines of this user. Returns a number for GiveUp.
  std::uint64_t Call(Order order, Clock::duration patience, Answer<EngineReply> answer)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Its caller has gone.
  void GiveUp(std::uint64_t call);

  void Reload(const v1::EngineReload& reload);
  void SetDraining(bool draining);
  void TurnedAway(const std::string& why);
  // Tells the engine to end.
  void Stop();
  // Kills it; `why` is said of its end in place of how it ended.
  void End(const std::string& why) ABSL_LOCKS_EXCLUDED(mutex_);
  bool stopping() const noexcept { return stopping_.load(std::memory_order_relaxed); }
  // What End was told; empty: nothing.
  std::string why_ended() ABSL_LOCKS_EXCLUDED(mutex_);
  // All that it has sent has been dealt with, and nothing more comes.
  bool channel_ended() const noexcept { return channel_ended_.load(std::memory_order_acquire); }
  // Ends the channel, if something keeps it open behind the process's end.
  void CutChannel() ABSL_LOCKS_EXCLUDED(mutex_);

  // Once its process and the channel have ended: ends its calls and sessions with this cause, and
  // lets other nodes know. What is left: tokens of sessions that it still had, and its place. Once.
  struct Remains {
    std::vector<std::string> tokens;
    Place place;  // to be given back
  };
  Remains Bury(const absl::Status& cause) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Of a session that is the engine's: what is needed if the engine ends first.
  struct Held {
    std::shared_ptr<const void> admission;
    std::string token;
    UniqueFd lifeline;
  };

  EngineClient(std::uint64_t number, const Parts& parts);
  bool Send(const v1::ToEngine& order, std::vector<UniqueFd> fds = {},
            CountedPlaces::Place place = nullptr) ABSL_LOCKS_EXCLUDED(mutex_);
  // All engines of a user have their turns at the channels one after the other.
  std::uint64_t ChannelFlow() const;
  // For a frame that begins to come; null: there is none now.
  std::shared_ptr<const void> RoomFor(std::size_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  void Forget(std::uint64_t call) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnFrame(ChannelFrame frame);
  void OnAnswer(v1::EngineAnswer answer, std::shared_ptr<const void> room)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnSessionEnded(const v1::EngineSessionEnded& ended) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::uint64_t number_;
  const Parts parts_;
  CountedPlaces frame_bytes_{kMostFrameBytes};
  CountedPlaces event_bytes_{kMostEventBytes};
  UniqueFd engine_end_;  // of the channel, until the process has it
  std::unique_ptr<EngineProcess> process_;
  std::atomic<pid_t> pid_{0};
  std::atomic<std::uint32_t> jobs_{0};
  std::atomic<bool> begun_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> channel_ended_{false};
  v1::EngineStart start_;
  std::string node_name_;
  double began_unix_seconds_ = 0;

  Mutex mutex_;
  std::shared_ptr<Channel> channel_ ABSL_GUARDED_BY(mutex_);
  Place place_ ABSL_GUARDED_BY(mutex_);
  std::map<SessionId, Held> held_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t sessions_given_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t last_call_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, std::shared_ptr<PendingCall<EngineReply>>> calls_ ABSL_GUARDED_BY(mutex_);
  Life life_ ABSL_GUARDED_BY(mutex_);
  std::string why_ended_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> buried_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_ENGINE_CLIENT_H_
