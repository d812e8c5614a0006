// What the supervisor orders, carried out by the engine of this process; and what the engine says,
// as frames of the channel.
#ifndef RINGD_DAEMON_ENGINE_PROCESS_ENGINE_SERVICE_H_
#define RINGD_DAEMON_ENGINE_PROCESS_ENGINE_SERVICE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "backends/tcp/line_shares.h"
#include "daemon/channel/channel_loop.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/engine_listener.h"
#include "daemon/engine_process/remote_network.h"
#include "daemon/jobs/plans/plan_store.h"
#include "daemon/peers/socket_peer_network.h"
#include "proto/base/clock.h"
#include "proto/base/memory_mapping.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"
#include "proto/channel/channel.h"
#include "proto/rpc/engine.pb.h"

namespace ringd {

//   service.Open(channel); while (!service.Wait(...)) service.Beat(); service.Stop();
//
// Thread safety: Open, Wait, Beat and Stop: the main thread. Frames come on the channel's thread,
//   the engine's words on its own.
// Ownership: owns the engine, what it borrows, and the channel.
class EngineService final : private EngineListener, private PlanKeeper {
 public:
  // `missing`: which walls this kernel does not put up, for the log of ringd's start.
  explicit EngineService(std::vector<std::string> missing);
  ~EngineService() override;
  EngineService(const EngineService&) = delete;
  EngineService& operator=(const EngineService&) = delete;

  // From now on frames are carried out.
  //   What the kernel says.
  absl::Status Open(UniqueFd channel);

  // True when this process shall end: the supervisor has said so, or gone, or what it says is not
  // to be understood. Waits until then, for `patience` at most.
  bool Wait(Clock::duration patience) ABSL_LOCKS_EXCLUDED(mutex_);

  // Shows the supervisor that this process is alive, and how far the engine is.
  void Beat();

  // Ends the engine's jobs, tells all concerned, and sends what waits, within a few seconds.
  void Stop();

 private:
  void OnFrame(ChannelFrame frame);
  absl::Status Obey(v1::ToEngine order, std::vector<UniqueFd> fds);
  absl::Status StartEngine(const v1::EngineStart& start, std::vector<UniqueFd> fds);
  // The segments that engines share.
  absl::Status OpenShares(const v1::EngineStart& start, const std::vector<UniqueFd>& fds);
  absl::Status Attach(const v1::EngineSession& session, std::vector<UniqueFd> fds);
  absl::Status BeginCall(const v1::EngineCall& call);
  absl::Status Join(const v1::EngineCall& call, const Caller& caller);
  void GiveUpCall(std::uint64_t number);

  // Reads the request and lets `ask` put it to the engine with the answer to be given.
  template <typename Request, typename Reply, typename Function>
  absl::Status Ask(const v1::EngineCall& call, Function ask);
  template <typename Reply>
  Answer<Reply> AnswerTo(std::uint64_t number);
  void SendAnswer(std::uint64_t number, const absl::Status& status, std::string reply);

  void OnSessionEnded(SessionId id, bool for_cause) override;
  void OnJobs(std::uint32_t jobs) override;
  void OnGeneration(std::uint32_t next) override;
  void OnJobEnded(const v1::Job& job) override;
  void OnIdle(std::uint64_t sessions) override;

  void Keep(KeptState changed) override;
  void KeepUnmeasured(const std::vector<std::string>& names, std::int64_t unix_seconds) override;

  void Send(const v1::FromEngine& word) ABSL_LOCKS_EXCLUDED(mutex_);
  void End(const std::string& why, bool ringd_has_gone = false) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::vector<std::string> missing_walls_;

  // In this order: later ones use earlier ones.
  MemoryMapping account_;
  std::unique_ptr<LineShares> shares_;
  std::unique_ptr<RemoteNetwork> remote_;
  std::unique_ptr<SocketPeerNetwork> network_;
  std::unique_ptr<Engine> engine_;  // null before the start; the channel's thread makes it

  Mutex mutex_;
  CondVar changed_;
  std::shared_ptr<Channel> channel_ ABSL_GUARDED_BY(mutex_);
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  bool ringd_has_gone_ ABSL_GUARDED_BY(mutex_) = false;  // without having said so
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  // Of joins that wait: what to do when their caller goes.
  std::map<std::uint64_t, std::function<void()>> joins_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<ChannelLoop> loop_;  // the first to go: it calls us
};

}  // namespace ringd

#endif  // RINGD_DAEMON_ENGINE_PROCESS_ENGINE_SERVICE_H_
