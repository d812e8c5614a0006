#include "daemon/peers/socket_peer_network.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <utility>

#include "daemon/peers/peer_streams.h"
#include "proto/base/errno_status.h"
#include "proto/base/unique_fd.h"
#include "proto/peers/peer_frame.h"

namespace ringd {
namespace {

// Long after every stream was cut: the thread that does it waits for nobody.
constexpr std::chrono::seconds kCutPatience{10};

template <typename Message>
std::string MessageFrame(const Message& message) {
  const std::string bytes = message.SerializeAsString();
  return EncodePeerFrame(PeerFrameKind::kMessage, std::as_bytes(std::span(bytes)));
}

// Says why and hangs up, without a stream. What it does not take at once it does not hear.
void TurnAway(const UniqueFd& socket, const absl::Status& why) {
  const std::string frame = EncodePeerEnd(why);
  static_cast<void>(!::send(socket.get(), frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
  ::shutdown(socket.get(), SHUT_WR);
}

}  // namespace

class SocketPeerNetwork::Impl {
 public:
  Impl(ControlDoor* door, const SocketPeerNetworkOptions& options, UniqueFd epoll)
      : door_(door), streams_(options, std::move(epoll)) {}

  void Start();
  StreamId Connect(CoordinatorAddress coordinator, Clock::time_point deadline);
  void Shutdown(Clock::time_point deadline);
  void SetEvents(PeerEvents* events) ABSL_LOCKS_EXCLUDED(mutex_) {
    streams_.SetEvents(events);
    const MutexLock lock(mutex_);
    events_ = events;
  }
  ControlDoor& door() { return *door_; }
  PeerStreams& streams() { return streams_; }

 private:
  void Admit(ExpectationId job, uid_t user, std::string from, UniqueFd socket);
  void Refused(ExpectationId job, RefusedNode node) ABSL_LOCKS_EXCLUDED(mutex_) {
    PeerEvents* told = nullptr;
    {
      const MutexLock lock(mutex_);
      told = events_;
    }
    if (told != nullptr) told->OnNodeRefused(job, std::move(node));
  }

  ControlDoor* const door_;
  PeerStreams streams_;
  Mutex mutex_;
  PeerEvents* events_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

void SocketPeerNetwork::Impl::Start() {
  streams_.Start();
  door_->Start({[this](ExpectationId job, uid_t user, std::string from, UniqueFd socket) {
                  Admit(job, user, std::move(from), std::move(socket));
                },
                [this](ExpectationId job, RefusedNode node) { Refused(job, std::move(node)); }});
}

void SocketPeerNetwork::Impl::Admit(ExpectationId job, uid_t user, std::string from,
                                    UniqueFd socket) {
  const StreamId id = streams_.NewId();
  PeerStreams::Origin origin;
  origin.job = job;
  origin.from = std::move(from);
  origin.user = user;
  origin.ended = [door = door_, user] { door->Release(user); };
  if (streams_.Add(id, std::move(origin))) return streams_.Connect(id, std::move(socket));
  TurnAway(socket, absl::UnavailableError("this ringd is starting or shutting down"));
  door_->Release(user);
}

StreamId SocketPeerNetwork::Impl::Connect(CoordinatorAddress coordinator,
                                          Clock::time_point deadline) {
  const StreamId id = streams_.NewId();
  const ControlDoor::DialId dial(id.value());
  PeerStreams::Origin origin;
  origin.host_port = coordinator.host_port;
  origin.user = coordinator.uid;
  origin.opened_here = true;
  origin.ended = [door = door_, dial] { door->Abandon(dial); };
  if (!streams_.Add(id, std::move(origin))) return id;
  door_->Dial(dial, std::move(coordinator), deadline, [this, id](absl::StatusOr<UniqueFd> outcome) {
    if (outcome.ok()) {
      streams_.Connect(id, *std::move(outcome));
    } else {
      streams_.EndUnconnected(id, outcome.status());
    }
  });
  return id;
}

void SocketPeerNetwork::Impl::Shutdown(Clock::time_point deadline) {
  for (const StreamId id : streams_.Refuse()) {
    streams_.Close(id, absl::CancelledError("this ringd is shutting down"));
  }
  door_->Stop();
  if (!streams_.WaitUntilEmpty(deadline)) {
    streams_.CutAll();
    streams_.WaitUntilEmpty(Clock::now() + kCutPatience);
  }
  streams_.Stop();
}

absl::StatusOr<std::unique_ptr<SocketPeerNetwork>> SocketPeerNetwork::Create(
    ControlDoor* door, const SocketPeerNetworkOptions& options) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return ErrnoStatus(errno, "a descriptor for streams between ringds");
  auto impl = std::make_unique<Impl>(door, options, std::move(epoll));
  impl->Start();
  return std::unique_ptr<SocketPeerNetwork>(new SocketPeerNetwork(std::move(impl)));
}

SocketPeerNetwork::SocketPeerNetwork(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

SocketPeerNetwork::~SocketPeerNetwork() { Shutdown(Clock::now()); }

void SocketPeerNetwork::Shutdown(Clock::time_point deadline) { impl_->Shutdown(deadline); }

void SocketPeerNetwork::SetEvents(PeerEvents* events) { impl_->SetEvents(events); }

ExpectationId SocketPeerNetwork::Expect(ExpectedJob job) {
  return impl_->door().Expect(std::move(job));
}

void SocketPeerNetwork::StopExpecting(ExpectationId job) { impl_->door().StopExpecting(job); }

StreamId SocketPeerNetwork::ConnectToCoordinator(CoordinatorAddress coordinator,
                                                 Clock::time_point deadline) {
  return impl_->Connect(std::move(coordinator), deadline);
}

void SocketPeerNetwork::Send(StreamId stream, v1::NodeMessage message) {
  impl_->streams().Send(stream, /*opened_here=*/true, MessageFrame(message));
}

void SocketPeerNetwork::Send(StreamId stream, v1::CoordinatorMessage message) {
  impl_->streams().Send(stream, /*opened_here=*/false, MessageFrame(message));
}

void SocketPeerNetwork::Close(StreamId stream, absl::Status reason) {
  impl_->streams().Close(stream, reason);
}

}  // namespace ringd
