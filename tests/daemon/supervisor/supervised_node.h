// A supervisor with real engines, on which tests make calls as gRPC's threads do.
#ifndef RINGD_TESTS_DAEMON_SUPERVISOR_SUPERVISED_NODE_H_
#define RINGD_TESTS_DAEMON_SUPERVISOR_SUPERVISED_NODE_H_

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "daemon/door/door.h"
#include "daemon/supervisor/engine_program.h"
#include "daemon/supervisor/engines.h"
#include "daemon/supervisor/lobby.h"
#include "daemon/supervisor/node_drain.h"
#include "daemon/supervisor/node_network.h"
#include "daemon/supervisor/supervisor.h"
#include "daemon/version.h"
#include "tests/daemon/supervisor/attached_trainer.h"

namespace ringd {

template <typename Reply>
struct Answered {
  absl::Status status;
  Reply reply;
};

// A call that has been made.
template <typename Reply>
using Asked = std::future<Answered<Reply>>;

template <typename Reply, typename Begin>
Asked<Reply> Ask(Begin begin) {
  auto promise = std::make_shared<std::promise<Answered<Reply>>>();
  auto future = promise->get_future();
  begin([promise](const absl::Status& status, Reply reply) {
    promise->set_value({status, std::move(reply)});
  });
  return future;
}

template <typename Reply>
Answered<Reply> AnswerOf(Asked<Reply> asked) {
  // No assertion: it may be another thread's.
  if (asked.wait_for(std::chrono::seconds(60)) != std::future_status::ready) {
    throw std::runtime_error("no answer came");
  }
  return asked.get();
}

inline const Caller kMe{::getuid()};

class SupervisedNode {
 public:
  static std::string Program() { return std::filesystem::absolute("daemon/ringd-engine"); }
  static Config Settings() {
    Config config;
    config.node_name = "node-a";
    config.backend = "none";
    config.state_dir = "";
    return config;
  }

  explicit SupervisedNode(const Config& config = Settings(),
                          const std::string& program = Program()) {
    DoorOptions door_options;
    door_options.address = "127.0.0.1:0";
    door_options.node_name = config.node_name;
    door = *Door::Open(std::move(door_options));
    network = std::make_unique<NodeNetwork>(door.get(), &isolated, NodeNetworkOptions());
    EnginesOptions options;
    options.config = config;
    options.version = kRingdVersion;
    options.program = std::make_shared<const EngineProgram>(*EngineProgram::At(program));
    options.peer_address = door->address();
    auto started = Engines::Start(std::move(options), network.get(), &plans, &isolated);
    REQUIRE(started.ok());
    engines = *std::move(started);
    door->Start();
    lobby = *Lobby::Create(&isolated);
    supervisor = std::make_unique<Supervisor>(
        SupervisorOptions{config, kRingdVersion, door->address(), "", "", "none"}, lobby.get(),
        nullptr, engines.get(), &drain);
  }
  ~SupervisedNode() {
    lobby->Stop("");
    engines->Stop();
    door->Stop();
    network->Stop();
    supervisor.reset();
    engines.reset();
    network.reset();
  }

  AttachedTrainer Attach() {
    AttachedTrainer trainer(++last_session_);
    lobby->Add(std::move(trainer.session));
    return trainer;
  }
  static v1::JoinRequest RequestOf(const std::string& job, int rank, int size) {
    v1::JoinRequest request;
    request.set_job_id(job);
    request.set_rank(rank);
    request.set_size(size);
    request.set_local_rank(rank);
    request.set_local_size(size);
    return request;
  }
  Asked<v1::JoinReply> BeginJoin(const std::string& token, const v1::JoinRequest& request,
                                 std::function<void()>* give_up = nullptr) {
    return Ask<v1::JoinReply>([&](Answer<v1::JoinReply> answer) {
      auto cancel = supervisor->Join(kMe, token, request, std::move(answer));
      if (give_up != nullptr) *give_up = std::move(cancel);
    });
  }
  absl::Status Join(const std::string& token, const std::string& job) {
    return AnswerOf(BeginJoin(token, RequestOf(job, 0, 1))).status;
  }
  Asked<v1::RegisterTensorsReply> BeginRegister(const std::string& token) {
    return Ask<v1::RegisterTensorsReply>([&](Answer<v1::RegisterTensorsReply> answer) {
      supervisor->RegisterTensors(kMe, token, {}, std::move(answer));
    });
  }
  v1::JobsReply Jobs(bool ended = false, const Caller& caller = kMe) {
    v1::ListJobsRequest request;
    request.set_ended(ended);
    return AnswerOf(Ask<v1::JobsReply>([&](Answer<v1::JobsReply> answer) {
             supervisor->ListJobs(caller, request, std::move(answer));
           }))
        .reply;
  }
  v1::StatusReply Status() {
    return AnswerOf(Ask<v1::StatusReply>([&](Answer<v1::StatusReply> answer) {
             supervisor->GetStatus(kMe, std::move(answer));
           }))
        .reply;
  }
  // Waits until so many engines serve a job.
  bool Serve(std::size_t count) {
    for (int i = 0; i < 3000 && engines->Serving().size() != count; ++i) ::poll(nullptr, 0, 10);
    return engines->Serving().size() == count;
  }
  // Waits until it runs: one that did not stand ready may have to be started.
  pid_t EngineOf(const std::string& job) {
    pid_t pid = 0;
    for (int i = 0; i < 3000 && pid <= 0; ++i) {
      if (i > 0) ::poll(nullptr, 0, 10);
      for (const auto& engine : engines->Serving()) {
        if (engine->job_id() == job) pid = engine->pid();
      }
    }
    REQUIRE(pid > 0);  // signals go to it
    return pid;
  }

  IsolatedExecutor isolated;
  std::unique_ptr<Door> door;
  std::unique_ptr<NodeNetwork> network;
  PlanStore plans;
  std::unique_ptr<Engines> engines;
  std::unique_ptr<Lobby> lobby;
  NodeDrain drain{[this](bool draining) { engines->SetDraining(draining); }};
  std::unique_ptr<Supervisor> supervisor;

 private:
  std::uint32_t last_session_ = 0;
};

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_SUPERVISOR_SUPERVISED_NODE_H_
