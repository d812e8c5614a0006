#include "tests/client/fake_ringd.h"

#include <fcntl.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

#include "proto/base/unix_socket.h"
#include "tests/client/fake_client_service.h"
#include "tests/client/fake_session.h"

namespace ringd {
namespace {

constexpr int kPollMs = 20;

}  // namespace

// The listening socket and whoever has come through it.
struct FakeRingd::State {
  explicit State(const FakeRingdSettings& wanted) : settings(wanted), service(wanted, &operations) {
    char folder_template[] = "/tmp/ringd-fake-XXXXXX";
    folder = ::mkdtemp(folder_template);
    socket = folder + "/s";
    listener = Must(ListenUnix(socket, 0600));
    grpc::ServerBuilder builder;
    builder.RegisterService(&service);
    server = builder.BuildAndStart();
    acceptor = std::thread([this] { AcceptLoop(); });
  }

  ~State() {
    stopping = true;
    service.Stop();
    acceptor.join();
    Die();
    server->Shutdown(std::chrono::system_clock::now());
    server.reset();
    ::unlink(socket.c_str());
    ::rmdir(folder.c_str());
  }

  void AcceptLoop() {
    while (!stopping) {
      pollfd entry{listener.get(), POLLIN, 0};
      if (::poll(&entry, 1, kPollMs) <= 0) continue;
      UniqueFd connection(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (connection.valid()) Attach(std::move(connection));
    }
  }

  void Attach(UniqueFd connection) {
    AttachRequest request{};
    auto received =
        ReceiveWithFds(connection.get(), std::as_writable_bytes(std::span(&request, 1)), Soon());
    if (!received.ok() || request.magic != kAttachMagic) return;
    AttachReply reply{};
    reply.magic = kAttachMagic;
    reply.version = settings.attach_version;
    if (!settings.refusal.ok()) {
      reply.status = static_cast<std::int32_t>(settings.refusal.code());
      reply.text_length = static_cast<std::uint32_t>(settings.refusal.message().size());
      std::memcpy(reply.text, settings.refusal.message().data(), reply.text_length);
      (void)SendWithFds(connection.get(), std::as_bytes(std::span(&reply, 1)), {}, Soon());
      return;
    }
    reply.session = 1;
    std::memcpy(reply.token, kFakeToken, sizeof(reply.token));
    const SessionSegmentLayout layout{settings.submission_capacity,
                                      2 * settings.submission_capacity};
    auto session = std::make_unique<FakeSession>(std::move(connection), layout,
                                                 settings.arena_bytes, &operations);
    auto [ours, theirs] = Must(UnixSocketPair());
    ::fcntl(ours.get(), F_SETFL, ::fcntl(ours.get(), F_GETFL) | O_NONBLOCK);
    // Kept to be able to cut the connection as a death would: gRPC owns the descriptor itself.
    UniqueFd cut(::fcntl(ours.get(), F_DUPFD_CLOEXEC, 0));
    grpc::AddInsecureChannelFromFd(server.get(), ours.Release());
    // Known before the client is: it may act at once.
    std::lock_guard lock(mutex);
    session->Answer(reply, theirs.get());
    if (settings.rank_exchange != nullptr) SendRankExchange(session->lifeline());
    grpc_cuts.push_back(std::move(cut));
    sessions.push_back(std::move(session));
  }

  void SendRankExchange(int lifeline) {
    RankExchangeLinks::Node& node = *settings.rank_exchange;
    SendNoticeWithFd(lifeline, NoticeKind::kRankExchange,
                     RankExchangeNotice{node.segment_bytes, 0, 0}, node.segment.get());
    for (std::uint32_t other = 0; other < node.connections.size(); ++other) {
      if (!node.connections[other].valid()) continue;
      SendNoticeWithFd(lifeline, NoticeKind::kRankExchangeConnection,
                       RankExchangeConnectionNotice{other, 0}, node.connections[other].get());
    }
  }

  template <typename Notice>
  static void SendNoticeWithFd(int lifeline, NoticeKind kind, const Notice& notice, int fd) {
    struct {
      NoticeHeader header;
      Notice notice;
    } message{{static_cast<std::uint32_t>(kind), sizeof(Notice)}, notice};
    (void)SendWithFds(lifeline, std::as_bytes(std::span(&message, 1)), {&fd, 1}, Soon());
  }

  void Die() {
    std::lock_guard lock(mutex);
    for (auto& session : sessions) session->Stop();
    for (auto& session : sessions) session->CloseLifeline();
    for (auto& cut : grpc_cuts) ::shutdown(cut.get(), SHUT_RDWR);
    grpc_cuts.clear();
  }

  const FakeRingdSettings settings;
  FakeOperations operations;
  FakeClientService service;
  std::string folder;
  std::string socket;
  UniqueFd listener;
  std::unique_ptr<grpc::Server> server;
  std::atomic<bool> stopping{false};
  std::thread acceptor;

  std::mutex mutex;  // guards what follows
  std::vector<std::unique_ptr<FakeSession>> sessions;
  std::vector<UniqueFd> grpc_cuts;
};

FakeRingd::FakeRingd(const FakeRingdSettings& settings)
    : state_(std::make_unique<State>(settings)) {}
FakeRingd::~FakeRingd() = default;

const std::string& FakeRingd::socket() const { return state_->socket; }

void FakeRingd::Hold() { state_->operations.holding = true; }

void FakeRingd::Release() {
  state_->operations.holding = false;
  std::lock_guard lock(state_->mutex);
  for (auto& session : state_->sessions) session->Wake();
}

void FakeRingd::FailOperations(const absl::Status& status) {
  std::lock_guard lock(state_->operations.mutex);
  state_->operations.status = status;
}

void FakeRingd::PushCompletion(std::uint64_t sequence, std::int32_t status) {
  CompletionRecord record{};
  record.sequence = sequence;
  record.status = status;
  record.error_slot = kErrorTextSlots;
  std::lock_guard lock(state_->mutex);
  state_->sessions.front()->Push(record);
  state_->sessions.front()->Ring();
}

void FakeRingd::SendNotice(std::uint32_t kind, const std::string& text) {
  const NoticeHeader header{kind, static_cast<std::uint32_t>(text.size())};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  SendRaw(bytes + text);
}

void FakeRingd::SendRaw(const std::string& bytes) {
  std::lock_guard lock(state_->mutex);
  for (auto& session : state_->sessions) {
    (void)SendWithFds(session->lifeline(), std::as_bytes(std::span(bytes)), {}, Soon());
  }
}

void FakeRingd::Die() { state_->Die(); }

SeenJoin FakeRingd::last_join() const { return state_->service.last_join(); }
int FakeRingd::join_calls() const { return state_->service.join_calls(); }
int FakeRingd::register_calls() const { return state_->service.register_calls(); }
int FakeRingd::leave_calls() const { return state_->service.leave_calls(); }
std::string FakeRingd::last_failure() const { return state_->service.last_failure(); }

std::vector<Submission> FakeRingd::submissions() const {
  std::lock_guard lock(state_->operations.mutex);
  return state_->operations.seen;
}

int FakeRingd::wakeups() const { return state_->operations.wakeups; }

int FakeRingd::live_sessions() const {
  std::lock_guard lock(state_->mutex);
  int live = 0;
  for (const auto& session : state_->sessions) {
    pollfd entry{session->lifeline(), POLLIN, 0};
    const bool hung_up = ::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLHUP | POLLIN)) != 0;
    if (session->lifeline() >= 0 && !hung_up) ++live;
  }
  return live;
}

}  // namespace ringd
