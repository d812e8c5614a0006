// Both halves of an engine's network in this process: what each sends reaches the other on a thread
// between them, as through a channel.
#ifndef RINGD_TESTS_DAEMON_ENGINE_PROCESS_JOINED_ENGINE_H_
#define RINGD_TESTS_DAEMON_ENGINE_PROCESS_JOINED_ENGINE_H_

#include <catch2/catch.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/door/door.h"
#include "daemon/engine_process/remote_network.h"
#include "daemon/supervisor/engine_network.h"
#include "daemon/supervisor/node_network.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace ringd {

// Does what it is given, in order, on its own thread.
class Courier {
 public:
  Courier() : thread_([this] { Run(); }) {}
  ~Courier() {
    Post(nullptr);
    thread_.join();
  }

  void Post(std::function<void()> task) {
    const MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
    changed_.NotifyAll();
  }
  // Until all that was posted before is done.
  void Settle() {
    bool done = false;
    Post([&] {
      const MutexLock lock(mutex_);
      done = true;
      changed_.NotifyAll();
    });
    const MutexLock lock(mutex_);
    while (!done) changed_.WaitUntil(mutex_, Clock::now() + std::chrono::seconds(60));
  }

 private:
  void Run() {
    for (;;) {
      std::function<void()> task;
      {
        const MutexLock lock(mutex_);
        while (tasks_.empty()) {
          changed_.WaitUntil(mutex_, Clock::now() + std::chrono::seconds(60));
        }
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      if (task == nullptr) return;
      task();
    }
  }

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

// An engine of `node`, whose process may end.
class JoinedEngine {
 public:
  explicit JoinedEngine(NodeNetwork* node, uid_t user = 0, const std::string& job_id = "job")
      : remote_(user, [this](v1::EngineNetworkRequest request) { Ask(std::move(request)); }) {
    half_ = node->AddEngine(user, job_id,
                            [this](v1::EngineNetworkEvent event, std::vector<UniqueFd> fds,
                                   const CountedPlaces::Place& /*place*/) {
                              // std::function needs something copyable.
                              auto shared = std::make_shared<std::vector<UniqueFd>>(std::move(fds));
                              courier_.Post([this, event = std::move(event), shared] {
                                remote_.OnEvent(event, std::move(*shared));
                              });
                            });
  }
  // Who uses remote() has gone.
  ~JoinedEngine() { End(); }

  RemoteNetwork& remote() { return remote_; }
  // To the supervisor.
  void Ask(v1::EngineNetworkRequest request) {
    courier_.Post([this, request = std::move(request)] {
      if (half_ == nullptr) return;
      absl::Status status = half_->OnRequest(request);
      const MutexLock lock(mutex_);
      if (!status.ok()) objections_.push_back(std::move(status));
    });
  }
  // What the supervisor has said against what was asked so far.
  std::vector<absl::Status> objections() {
    courier_.Settle();
    const MutexLock lock(mutex_);
    return objections_;
  }
  // The supervisor sees the engine's end.
  void End() {
    courier_.Post([this] { half_.reset(); });
    courier_.Settle();
  }

 private:
  Mutex mutex_;
  std::vector<absl::Status> objections_ ABSL_GUARDED_BY(mutex_);
  RemoteNetwork remote_;
  std::unique_ptr<EngineNetwork> half_;  // the courier's
  Courier courier_;
};

// A node with a door on the loopback interface.
struct JoinedNode {
  explicit JoinedNode(const std::string& name, const NodeNetworkOptions& options = {},
                      const std::string& address = "127.0.0.1:0") {
    DoorOptions door_options;
    door_options.address = address;
    door_options.node_name = name;
    auto opened = Door::Open(std::move(door_options));
    INFO(opened.status());
    REQUIRE(opened.ok());
    door = *std::move(opened);
    network = std::make_unique<NodeNetwork>(door.get(), &isolated, options);
    door->Start();
  }
  // Its engines have gone.
  ~JoinedNode() {
    door->Stop();
    network->Stop();
  }

  // For an engine's wires.
  std::unique_ptr<WireSockets> MakeWires(JoinedEngine& engine,
                                         DoorPurpose purpose = DoorPurpose::kWire) const {
    auto made = engine.remote().MakeWireSockets(purpose, door->address());
    INFO(made.status());
    REQUIRE(made.ok());
    return *std::move(made);
  }

  IsolatedExecutor isolated;
  std::unique_ptr<Door> door;
  std::unique_ptr<NodeNetwork> network;
};

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_ENGINE_PROCESS_JOINED_ENGINE_H_
