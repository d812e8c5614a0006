#include "daemon/rpc/local_server.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/logging/log.h"

namespace ringd {

absl::StatusOr<std::unique_ptr<LocalServer>> LocalServer::Start(NodeCalls* node,
                                                                const UserCalls::Limits& limits) {
  absl::StatusOr<std::unique_ptr<RefusingServer>> refusing = RefusingServer::Start();
  if (!refusing.ok()) return refusing.status();
  return std::unique_ptr<LocalServer>(new LocalServer(node, limits, *std::move(refusing)));
}

LocalServer::LocalServer(NodeCalls* node, const UserCalls::Limits& limits,
                         std::unique_ptr<RefusingServer> refusing)
    : node_(node), limits_(limits), refusing_(std::move(refusing)) {}

LocalServer::~LocalServer() { Shutdown(Clock::now()); }

std::shared_ptr<const void> LocalServer::AddConnection(UniqueFd socket, const Caller& caller) {
  // Ended without the lock, for which a call that one of them still answers may wait (SetServing).
  std::vector<std::unique_ptr<UserServer>> idle;
  MutexLock lock(mutex_);
  if (servers_.size() >= kKeptServers && !servers_.contains(caller)) idle = TakeIdle();
  const absl::StatusOr<UserServer*> server = ServerOf(caller);
  if (!server.ok()) {
    LogError(absl::StrCat("a connection of uid ", caller.uid,
                          " was closed: ", server.status().message()));
    return nullptr;
  }
  return (*server)->AddConnection(std::move(socket));
}

absl::StatusOr<UserServer*> LocalServer::ServerOf(const Caller& caller) {
  const auto found = servers_.find(caller);
  if (found != servers_.end()) return found->second.get();
  absl::StatusOr<std::unique_ptr<UserServer>> started =
      UserServer::Start(node_, caller, CallsOf(caller.uid));
  if (!started.ok()) return started.status();
  (*started)->SetServing(serving_);
  return servers_.emplace(caller, *std::move(started)).first->second.get();
}

std::shared_ptr<UserCalls> LocalServer::CallsOf(uid_t user) {
  std::erase_if(calls_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<UserCalls>& place = calls_[user];
  std::shared_ptr<UserCalls> calls = place.lock();
  if (calls == nullptr) place = calls = std::make_shared<UserCalls>(limits_);
  return calls;
}

std::vector<std::unique_ptr<UserServer>> LocalServer::TakeIdle() {
  std::vector<std::unique_ptr<UserServer>> idle;
  for (auto it = servers_.begin(); it != servers_.end();) {
    if (it->second->Idle()) {
      idle.push_back(std::move(it->second));
      it = servers_.erase(it);
    } else {
      ++it;
    }
  }
  return idle;
}

void LocalServer::RefuseConnection(UniqueFd socket) { refusing_->AddConnection(std::move(socket)); }

void LocalServer::SetServing(bool serving) {
  MutexLock lock(mutex_);
  serving_ = serving;
  for (const auto& [caller, server] : servers_) server->SetServing(serving);
}

void LocalServer::Shutdown(Clock::time_point deadline) {
  refusing_->Stop();
  // Without the lock, as in AddConnection.
  std::map<Caller, std::unique_ptr<UserServer>> servers;
  {
    MutexLock lock(mutex_);
    std::swap(servers, servers_);
  }
  for (const auto& [caller, server] : servers) server->Shutdown(deadline);
}

}  // namespace ringd
