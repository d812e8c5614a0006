#include "daemon/peers/socket_peer_network.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <utility>

#include "daemon/peers/coordinator_dial.h"
#include "daemon/peers/expected_jobs.h"
#include "daemon/peers/name_resolver.h"
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
  Impl(Door* door, const SocketPeerNetworkOptions& options, UniqueFd epoll);
  ~Impl() { door_->RemoveReception(DoorPurpose::kControl, expected_.get()); }

  void Start() {
    door_->SetReception(DoorPurpose::kControl, expected_);
    streams_.Start();
  }
  StreamId Connect(CoordinatorAddress coordinator, Clock::time_point deadline);
  void Shutdown(Clock::time_point deadline);
  ExpectationId Expect(ExpectedJob job) {
    const ExpectationId id = expected_->Add(std::move(job));
    door_->Reconsider();
    return id;
  }
  void RefuseNewJobs() {
    expected_->Drain();
    door_->Reconsider();
  }
  ExpectedJobs& expected() { return *expected_; }
  PeerStreams& streams() { return streams_; }

 private:
  void Admit(ExpectationId job, uid_t user, DoorArrival arrival);
  void Refused(ExpectationId job, const RefusedNode& node) ABSL_LOCKS_EXCLUDED(mutex_) {
    PeerEvents* told = nullptr;
    {
      const MutexLock lock(mutex_);
      told = events_;
    }
    if (told != nullptr) told->OnNodeRefused(job, node);
  }

 public:
  void SetEvents(PeerEvents* events) ABSL_LOCKS_EXCLUDED(mutex_) {
    streams_.SetEvents(events);
    const MutexLock lock(mutex_);
    events_ = events;
  }

 private:
  Door* const door_;
  const std::uint32_t door_flags_;
  const std::shared_ptr<ExpectedJobs> expected_;
  PeerStreams streams_;
  Mutex mutex_;
  PeerEvents* events_ ABSL_GUARDED_BY(mutex_) = nullptr;
  NameResolver resolver_;  // stopped before the rest goes
};

SocketPeerNetwork::Impl::Impl(Door* door, const SocketPeerNetworkOptions& options, UniqueFd epoll)
    : door_(door),
      door_flags_(options.door_flags),
      expected_(std::make_shared<ExpectedJobs>(ExpectedJobs::Handlers{
          [this](ExpectationId job, uid_t user, DoorArrival arrival) {
            Admit(job, user, std::move(arrival));
          },
          [this](ExpectationId job, const RefusedNode& node) { Refused(job, node); }})),
      streams_(options, std::move(epoll)) {}

void SocketPeerNetwork::Impl::Admit(ExpectationId job, uid_t user, DoorArrival arrival) {
  const StreamId id = streams_.NewId();
  PeerStreams::Origin origin;
  origin.job = job;
  origin.from = std::move(arrival.from);
  origin.user = user;
  origin.ended = [expected = expected_, user] { expected->Release(user); };
  if (streams_.Add(id, std::move(origin))) {
    return streams_.Connect(id, std::move(arrival.socket));
  }
  TurnAway(arrival.socket, absl::UnavailableError("this ringd is starting or shutting down"));
  expected_->Release(user);
}

StreamId SocketPeerNetwork::Impl::Connect(CoordinatorAddress coordinator,
                                          Clock::time_point deadline) {
  const StreamId id = streams_.NewId();
  PeerStreams::Origin origin;
  origin.host_port = coordinator.host_port;
  origin.user = coordinator.uid;
  origin.opened_here = true;
  const auto dial = std::make_shared<CoordinatorDial>(
      door_, &resolver_, std::move(coordinator), door_flags_, deadline,
      [this, id](absl::StatusOr<DoorConnection> outcome) {
        if (outcome.ok()) {
          streams_.Connect(id, std::move(outcome->socket));
        } else {
          streams_.EndUnconnected(id, outcome.status());
        }
      });
  origin.ended = [dial] { dial->Abandon(); };
  if (streams_.Add(id, std::move(origin))) dial->Begin();
  return id;
}

void SocketPeerNetwork::Impl::Shutdown(Clock::time_point deadline) {
  for (const StreamId id : streams_.Refuse()) {
    streams_.Close(id, absl::CancelledError("this ringd is shutting down"));
  }
  resolver_.Stop();
  if (!streams_.WaitUntilEmpty(deadline)) {
    streams_.CutAll();
    streams_.WaitUntilEmpty(Clock::now() + kCutPatience);
  }
  streams_.Stop();
}

absl::StatusOr<std::unique_ptr<SocketPeerNetwork>> SocketPeerNetwork::Create(
    Door* door, const SocketPeerNetworkOptions& options) {
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

ExpectationId SocketPeerNetwork::Expect(ExpectedJob job) { return impl_->Expect(std::move(job)); }

void SocketPeerNetwork::StopExpecting(ExpectationId job) { impl_->expected().Remove(job); }

void SocketPeerNetwork::RefuseNewJobs() { impl_->RefuseNewJobs(); }

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
