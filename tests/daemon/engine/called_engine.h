// An engine on which tests make calls, as gRPC's threads do; its trainers are in this process.
#ifndef RINGD_TESTS_DAEMON_ENGINE_CALLED_ENGINE_H_
#define RINGD_TESTS_DAEMON_ENGINE_CALLED_ENGINE_H_

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/attach/session_factory.h"
#include "daemon/engine/engine.h"
#include "proto/base/unix_socket.h"
#include "proto/door/door_key.h"
#include "tests/daemon/engine/fake_peer_network.h"
#include "tests/daemon/engine/recorded_listener.h"

namespace ringd {

template <typename Reply>
struct Awaited {
  absl::Status status;
  Reply reply;
};

// The answer to a call that `begin` makes.
template <typename Reply, typename Begin>
Awaited<Reply> Await(Begin begin) {
  auto promise = std::make_shared<std::promise<Awaited<Reply>>>();
  auto future = promise->get_future();
  begin([promise](const absl::Status& status, Reply reply) {
    promise->set_value({status, std::move(reply)});
  });
  REQUIRE(future.wait_for(std::chrono::seconds(60)) == std::future_status::ready);
  return future.get();
}

struct Trainer {
  std::string token;
  SessionId session;
  UniqueFd lifeline;         // the trainer's end
  TraceRingView trace_ring;  // this and the next: as long as the session lives
  RingCursors* submission_cursors = nullptr;
  std::string job_id;
  std::uint32_t communicator = 0;
};

class Node {
 public:
  // `set` changes what the options are otherwise.
  explicit Node(const std::function<void(EngineOptions&)>& set) {
    EngineOptions options;
    options.listener = &listener;
    options.config.node_name = "node-a";
    set(options);
    engine = std::make_unique<Engine>(std::move(options), nullptr, nullptr, &network_);
    engine->Start();
  }
  // `account`: that of the one user, who has other engines, too; this one has `slot` of it.
  explicit Node(std::uint64_t registration_bytes = std::uint64_t{256} << 20,
                UserAccountSegment* account = nullptr, std::size_t slot = 0)
      : Node([=](EngineOptions& options) {
          options.config.registration_bytes_per_user = registration_bytes;
          if (account == nullptr) return;
          options.user_registrations.emplace(*account, slot, &UserAccountSlot::registration_bytes);
          options.user_communicators.emplace(*account, slot, &UserAccountSlot::communicators);
        }) {}
  ~Node() { engine.reset(); }  // before the network that it uses

  Trainer Attach(uid_t uid = 1000) {
    auto ends = UnixSocketPair();
    REQUIRE(ends.ok());
    const SessionId id(++last_session_);
    auto made = MakeSession(id, {1 << 20, 16}, {::getpid(), uid, 0}, ends->first.get());
    REQUIRE(made.ok());
    made->resources->lifeline = std::move(ends->first);
    REQUIRE(made->resources->MapMemory().ok());
    Trainer trainer;
    trainer.token = made->resources->token;
    trainer.session = id;
    trainer.lifeline = std::move(ends->second);
    const SessionSegmentView view =
        ViewSessionSegment(made->resources->segment.data(), made->resources->layout);
    trainer.trace_ring = view.trace_ring;
    trainer.submission_cursors = view.submission_cursors;
    engine->Attach(std::move(made->resources));
    return trainer;
  }

  v1::JoinRequest JoinRequestOf(int rank, int size) {
    v1::JoinRequest request;
    request.set_job_id("job" + std::to_string(last_session_));
    request.set_rank(rank);
    request.set_size(size);
    request.set_local_rank(rank);
    request.set_local_size(size);
    return request;
  }

  // The function that is returned gives the join up.
  std::function<void()> BeginJoin(const std::string& token, const v1::JoinRequest& request,
                                  Answer<v1::JoinReply> answer, uid_t uid = 1000) {
    return engine->Join({uid}, token, request,
                        JobKey("cluster", request.job_id(), request.secret(), uid),
                        std::move(answer));
  }

  // Attached, and in a job of its own.
  Trainer Join(uid_t uid = 1000) {
    Trainer trainer = Attach(uid);
    const v1::JoinRequest request = JoinRequestOf(0, 1);
    const auto joined = Await<v1::JoinReply>([&](Answer<v1::JoinReply> answer) {
      static_cast<void>(BeginJoin(trainer.token, request, std::move(answer), uid));
    });
    trainer.job_id = request.job_id();
    REQUIRE(joined.status.message() == "");
    trainer.communicator = joined.reply.communicator();
    return trainer;
  }

  Awaited<v1::RegisterTensorsReply> Register(const Trainer& trainer,
                                             const v1::RegisterTensorsRequest& request) {
    return Await<v1::RegisterTensorsReply>([&](Answer<v1::RegisterTensorsReply> answer) {
      engine->RegisterTensors({1000}, trainer.token, request, std::move(answer));
    });
  }

  absl::Status Unregister(const Trainer& trainer, const std::vector<std::uint32_t>& numbers) {
    v1::UnregisterTensorsRequest request;
    request.mutable_registrations()->Add(numbers.begin(), numbers.end());
    return Await<v1::UnregisterTensorsReply>([&](Answer<v1::UnregisterTensorsReply> answer) {
             engine->UnregisterTensors({1000}, trainer.token, request, std::move(answer));
           })
        .status;
  }

  RecordedListener listener;
  std::unique_ptr<Engine> engine;

 private:
  FakePeerNetwork network_;
  std::uint32_t last_session_ = 0;
};

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_ENGINE_CALLED_ENGINE_H_
