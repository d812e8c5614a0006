#include "daemon/engine_process/remote_control_door.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "daemon/channel/engine_status.h"
#include "proto/door/hmac.h"

namespace ringd {

RemoteControlDoor::RemoteControlDoor(uid_t user, Send send) : user_(user), send_(std::move(send)) {}

void RemoteControlDoor::Start(Handlers handlers) {
  const MutexLock lock(calling_);
  handlers_ = std::move(handlers);
  running_ = true;
}

void RemoteControlDoor::Stop() {
  const MutexLock lock(calling_);
  running_ = false;
}

void RemoteControlDoor::OnEvent(const v1::EngineNetworkEvent& event, UniqueFd socket) {
  const MutexLock lock(calling_);
  if (event.has_node_admitted()) {
    if (!socket.valid()) return;
    if (!running_) return Release(user_);
    const v1::EngineNodeAdmitted& admitted = event.node_admitted();
    handlers_.admitted(ExpectationId(admitted.expectation()), user_, admitted.from(),
                       std::move(socket));
  } else if (event.has_node_refused() && running_) {
    const v1::EngineNodeRefused& refused = event.node_refused();
    handlers_.refused(
        ExpectationId(refused.expectation()),
        {refused.node_name(), refused.from(), refused.uid(), refused.has_cluster_key()});
  } else if (event.has_coordinator_dialled()) {
    OnDialled(event.coordinator_dialled(), std::move(socket));
  }
}

void RemoteControlDoor::OnDialled(const v1::EngineCoordinatorDialled& event, UniqueFd socket) {
  DialDone done;
  {
    const MutexLock lock(mutex_);
    const auto found = dials_.find(DialId(event.dial()));
    if (found == dials_.end()) return;
    done = std::move(found->second);
    dials_.erase(found);
  }
  if (!running_) return;
  if (absl::Status status = ReadStatus(event.status()); !status.ok()) {
    done(std::move(status));
  } else if (socket.valid()) {
    done(std::move(socket));
  } else {
    done(absl::InternalError("the supervisor has dialled and sent no connection"));
  }
}

ExpectationId RemoteControlDoor::Expect(ExpectedJob job) {
  v1::EngineNetworkRequest request;
  v1::EngineExpect& expect = *request.mutable_expect();
  ExpectationId id;
  {
    const MutexLock lock(mutex_);
    id = ExpectationId(++last_expectation_);
  }
  expect.set_expectation(id.value());
  expect.set_key(std::string(AsText(job.key)));
  expect.set_has_secret(job.has_secret);
  expect.set_one_node_only(job.one_node_only);
  send_(std::move(request));
  return id;
}

void RemoteControlDoor::StopExpecting(ExpectationId job) {
  v1::EngineNetworkRequest request;
  request.mutable_stop_expecting()->set_expectation(job.value());
  send_(std::move(request));
}

void RemoteControlDoor::Release(uid_t /*user*/) {
  v1::EngineNetworkRequest request;
  request.mutable_connection_ended();
  send_(std::move(request));
}

void RemoteControlDoor::Dial(DialId id, CoordinatorAddress coordinator, Clock::time_point deadline,
                             DialDone done) {
  {
    const MutexLock lock(mutex_);
    dials_[id] = std::move(done);
  }
  const auto patience =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  v1::EngineNetworkRequest request;
  v1::EngineDialCoordinator& dial = *request.mutable_dial_coordinator();
  dial.set_dial(id.value());
  dial.set_host_port(coordinator.host_port);
  dial.set_key(std::string(AsText(coordinator.key)));
  dial.set_has_secret(coordinator.has_secret);
  dial.set_patience_ms(static_cast<std::uint64_t>(std::max<std::int64_t>(patience.count(), 0)));
  send_(std::move(request));
}

void RemoteControlDoor::Abandon(DialId id) {
  DialDone abandoned;  // goes without the lock
  {
    const MutexLock lock(mutex_);
    const auto found = dials_.find(id);
    if (found == dials_.end()) return;
    abandoned = std::move(found->second);
    dials_.erase(found);
  }
  v1::EngineNetworkRequest request;
  request.mutable_abandon_dial()->set_dial(id.value());
  send_(std::move(request));
}

}  // namespace ringd
