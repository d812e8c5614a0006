// A listener on a socket of its own, and the two things that its callbacks were given.
#ifndef RINGD_TESTS_DAEMON_ATTACH_LISTENER_FIXTURE_H_
#define RINGD_TESTS_DAEMON_ATTACH_LISTENER_FIXTURE_H_

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "daemon/attach/attach_listener.h"
#include "daemon/config/config.h"
#include "proto/attach/handshake.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/unix_socket.h"

namespace ringd {

inline Clock::time_point InSeconds(int seconds) {
  return Clock::now() + std::chrono::seconds(seconds);
}

class ListenerFixture {
 public:
  ListenerFixture() {
    char folder[] = "/tmp/ringd-XXXXXX";
    folder_ = mkdtemp(folder);
    // Other users' processes must be able to get as far as the socket.
    ::chmod(folder, 0755);
    config.socket = folder_ + "/s";
    config.arena_bytes = 1 << 20;
    config.submission_ring_capacity = 16;
  }
  ~ListenerFixture() {
    listener.reset();
    std::filesystem::remove_all(folder_);
  }

  absl::Status Start() {
    auto started = AttachListener::Start(config, Callbacks());
    if (!started.ok()) return started.status();
    listener = *std::move(started);
    return absl::OkStatus();
  }

  absl::Status Reload(const Config& changed) {
    absl::StatusOr<Admission> renewed = listener->admission()->Renew(changed);
    if (!renewed.ok()) return renewed.status();
    listener->Use(std::make_shared<Admission>(*std::move(renewed)));
    return absl::OkStatus();
  }

  AttachCallbacks Callbacks() {
    return {[this](std::unique_ptr<SessionResources> session) {
              MutexLock lock(mutex_);
              sessions_.push_back(std::move(session));
            },
            [this](UniqueFd connection, const AdmittedUser& user) {
              MutexLock lock(mutex_);
              admitted_.push_back(user);
              grpc_connections_.push_back(std::move(connection));
              changed_.NotifyAll();
              return std::shared_ptr<const void>();
            },
            [this](UniqueFd connection) {
              MutexLock lock(mutex_);
              refused_grpc_connections_.push_back(std::move(connection));
            },
            [this] {
              MutexLock lock(mutex_);
              ++refused_;
            },
            [this](pid_t pid, Clock::time_point since) {
              if (const auto look = std::exchange(before_next, nullptr)) look();
              return pid == engine_pid.load() && engine_ended.load() >= since;
            },
            [this] { return draining.load(); },
            ask_user};
  }

  UniqueFd Connect() const {
    auto socket = ConnectUnix(config.socket, InSeconds(10));
    REQUIRE(socket.ok());
    return *std::move(socket);
  }

  // What the engine was given so far.
  std::vector<std::unique_ptr<SessionResources>> TakeSessions() {
    MutexLock lock(mutex_);
    return std::exchange(sessions_, {});
  }
  std::vector<UniqueFd> WaitForGrpcConnections(std::size_t count) {
    MutexLock lock(mutex_);
    const Clock::time_point deadline = InSeconds(10);
    while (grpc_connections_.size() < count && changed_.WaitUntil(mutex_, deadline)) {
    }
    return std::exchange(grpc_connections_, {});
  }
  // Whose the connections to the gRPC server were, sessions' own included.
  std::vector<AdmittedUser> admitted() {
    MutexLock lock(mutex_);
    return admitted_;
  }
  std::size_t refused_grpc_count() {
    MutexLock lock(mutex_);
    return refused_grpc_connections_.size();
  }
  int refused() {
    MutexLock lock(mutex_);
    return refused_;
  }

  Config config;
  std::atomic<pid_t> engine_pid = 0;                                       // 0: nobody's
  std::atomic<Clock::time_point> engine_ended = Clock::time_point::max();  // max: it goes on
  std::atomic<bool> draining = false;
  std::function<void()> before_next;  // on the listener's thread, when one is accepted; once
  UserQuestions::Ask ask_user = AttachCallbacks().ask_user;
  std::unique_ptr<AttachListener> listener;

 private:
  std::string folder_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::unique_ptr<SessionResources>> sessions_;
  std::vector<UniqueFd> grpc_connections_;
  std::vector<UniqueFd> refused_grpc_connections_;
  std::vector<AdmittedUser> admitted_;
  int refused_ = 0;
};

struct AttachAnswer {
  AttachReply reply{};
  std::vector<UniqueFd> fds;

  absl::StatusCode code() const { return static_cast<absl::StatusCode>(reply.status); }
  std::string text() const { return std::string(reply.text, reply.text_length); }
};

// The client's half of the handshake. The connection must not end before the answer is whole.
inline absl::StatusOr<AttachAnswer> RequestAttach(int socket,
                                                  std::uint32_t version = kAttachVersion) {
  AttachRequest request{};
  request.magic = kAttachMagic;
  request.version = version;
  if (absl::Status status =
          SendWithFds(socket, std::as_bytes(std::span(&request, 1)), {}, InSeconds(10));
      !status.ok()) {
    return status;
  }
  AttachAnswer answer;
  auto fds =
      ReceiveWithFds(socket, std::as_writable_bytes(std::span(&answer.reply, 1)), InSeconds(10));
  if (!fds.ok()) return fds.status();
  answer.fds = *std::move(fds);
  return answer;
}

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_ATTACH_LISTENER_FIXTURE_H_
