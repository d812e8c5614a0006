#include "tests/client/fake_ringd.h"

#include <fcntl.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <span>
#include <stdexcept>
#include <thread>
#include <utility>

#include "proto/base/clock.h"
#include "proto/base/memfd.h"
#include "proto/base/memory_mapping.h"
#include "proto/base/unix_socket.h"
#include "proto/rpc/client.grpc.pb.h"
#include "proto/shm/session_segment.h"
#include "proto/types/collective_kind.h"
#include "proto/types/data_type.h"

namespace ringd {
namespace {

constexpr char kToken[] = "0123456789abcdef0123456789abcdef";
constexpr int kPollMs = 20;
// Longer than any test waits: without its eventfd the engine sleeps too long to pass.
constexpr int kEngineSleepMs = 5000;

Clock::time_point Soon() { return Clock::now() + std::chrono::seconds(5); }

template <typename T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) throw std::runtime_error(value.status().ToString());
  return *std::move(value);
}

struct RegisteredTensor {
  CollectiveKind kind;
  DataType data_type;
  bool is_root;
};

}  // namespace

// What all sessions share, and the gRPC service.
struct FakeRingd::State final : public v1::Client::Service {
  // One attached client with its engine thread.
  struct Session {
    UniqueFd lifeline;
    MemoryMapping segment;
    MemoryMapping arena;
    UniqueFd wakeup;
    SessionSegmentView view;
    RingConsumer<Submission> submissions;
    RingProducer<CompletionRecord> completions;
    std::mutex completion_mutex;  // guards completions
    std::vector<Submission> held;
    std::uint32_t error_versions[kErrorTextSlots] = {};
    std::atomic<bool> stop{false};
    std::thread engine;
  };

  explicit State(const FakeRingdSettings& wanted) : settings(wanted) {
    char folder_template[] = "/tmp/ringd-fake-XXXXXX";
    folder = ::mkdtemp(folder_template);
    socket = folder + "/s";
    listener = Must(ListenUnix(socket, 0600));
    grpc::ServerBuilder builder;
    builder.RegisterService(this);
    server = builder.BuildAndStart();
    acceptor = std::thread([this] { AcceptLoop(); });
  }

  ~State() override {
    stopping = true;
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
    auto session = std::make_unique<Session>();
    const SessionSegmentLayout layout{settings.submission_capacity,
                                      2 * settings.submission_capacity};
    const UniqueFd segment_fd = Must(CreateSealedMemfd("fake-session", layout.segment_bytes()));
    const UniqueFd arena_fd = Must(CreateSealedMemfd("fake-arena", settings.arena_bytes));
    session->segment = Must(MemoryMapping::Map(segment_fd.get(), layout.segment_bytes()));
    session->arena = Must(MemoryMapping::Map(arena_fd.get(), settings.arena_bytes));
    InitializeSessionSegment(session->segment.data(), layout, 1, settings.arena_bytes);
    session->view = ViewSessionSegment(session->segment.data(), layout);
    session->submissions = {session->view.submission_cursors, session->view.submissions,
                            layout.submission_capacity};
    session->completions = {session->view.completion_cursors, session->view.completions,
                            layout.completion_capacity};
    session->wakeup = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    auto [ours, theirs] = Must(UnixSocketPair());
    ::fcntl(ours.get(), F_SETFL, ::fcntl(ours.get(), F_GETFL) | O_NONBLOCK);
    // Kept to be able to cut the connection as a death would: gRPC owns the descriptor itself.
    UniqueFd cut(::fcntl(ours.get(), F_DUPFD_CLOEXEC, 0));
    grpc::AddInsecureChannelFromFd(server.get(), ours.Release());

    reply.session = 1;
    reply.segment_bytes = layout.segment_bytes();
    reply.arena_bytes = settings.arena_bytes;
    std::memcpy(reply.token, kToken, sizeof(reply.token));
    int fds[kAttachFdCount];
    fds[kSessionSegmentFd] = segment_fd.get();
    fds[kArenaFd] = arena_fd.get();
    fds[kEngineEventFd] = session->wakeup.get();
    fds[kGrpcFd] = theirs.get();
    session->lifeline = std::move(connection);
    session->engine = std::thread([this, s = session.get()] { EngineLoop(*s); });
    // Known before the client is: it may act at once.
    std::lock_guard lock(mutex);
    (void)SendWithFds(session->lifeline.get(), std::as_bytes(std::span(&reply, 1)), fds, Soon());
    grpc_cuts.push_back(std::move(cut));
    sessions.push_back(std::move(session));
  }

  void EngineLoop(Session& session) {
    while (!session.stop) {
      Submission submission;
      bool worked = false;
      while (session.submissions.TryPop(submission) == RingResult::kOk) {
        worked = true;
        {
          std::lock_guard lock(mutex);
          seen.push_back(submission);
        }
        session.held.push_back(submission);
      }
      if (!holding) {
        // The youngest first: nothing may rely on an order.
        while (!session.held.empty()) {
          worked = true;
          submission = session.held.back();
          session.held.pop_back();
          Execute(session, submission);
        }
      }
      if (worked) {
        session.view.header->completions.Ring();
        continue;
      }
      session.view.header->engine_sleeps.store(1, std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_seq_cst);
      if (!session.submissions.HasWork() && !session.stop) {
        pollfd entry{session.wakeup.get(), POLLIN, 0};
        std::uint64_t count = 0;
        if (::poll(&entry, 1, kEngineSleepMs) > 0 &&
            ::read(session.wakeup.get(), &count, sizeof(count)) == sizeof(count)) {
          ++wakeups;
        }
      }
      session.view.header->engine_sleeps.store(0, std::memory_order_relaxed);
    }
  }

  void Execute(Session& session, const Submission& submission) {
    absl::Status outcome;
    RegisteredTensor tensor{};
    {
      std::lock_guard lock(mutex);
      outcome = operation_status;
      const auto found = tensors.find(submission.registration);
      if (found == tensors.end()) {
        outcome = absl::InvalidArgumentError("unknown registration");
      } else {
        tensor = found->second;
      }
    }
    const std::uint64_t bytes = submission.element_count * SizeOf(tensor.data_type);
    if (outcome.ok() && (submission.source_offset + bytes > session.arena.size() ||
                         submission.destination_offset + bytes > session.arena.size())) {
      outcome = absl::InvalidArgumentError("beyond the arena");
    }
    CompletionRecord record{};
    record.sequence = submission.sequence;
    record.completed_ns = MonotonicNanos();
    if (outcome.ok()) {
      Compute(session, submission, tensor, bytes);
    } else {
      record.status = static_cast<std::int32_t>(outcome.code());
      record.error_slot = static_cast<std::uint32_t>(submission.sequence % kErrorTextSlots);
      auto& version = session.error_versions[record.error_slot];
      version =
          WriteErrorText(session.view.error_texts[record.error_slot], version, outcome.message());
      record.error_version = version;
    }
    Push(session, record);
  }

  static void Compute(Session& session, const Submission& submission,
                      const RegisteredTensor& tensor, std::uint64_t bytes) {
    std::byte* source = session.arena.data() + submission.source_offset;
    std::byte* destination = session.arena.data() + submission.destination_offset;
    if (tensor.kind == CollectiveKind::kBroadcast) {
      if (!tensor.is_root) std::memset(destination, static_cast<int>(kBroadcastByte), bytes);
    } else if (tensor.data_type == DataType::kFloat32) {
      const auto* in = reinterpret_cast<const float*>(source);
      auto* out = reinterpret_cast<float*>(destination);
      for (std::uint64_t i = 0; i < submission.element_count; ++i) out[i] = 2 * in[i];
    } else {
      std::memmove(destination, source, bytes);
    }
  }

  static void Push(Session& session, const CompletionRecord& record) {
    std::lock_guard lock(session.completion_mutex);
    // The library promises that there is always room.
    if (session.completions.TryPush(record) != RingResult::kOk) std::abort();
  }

  void WakeEngines() {
    std::lock_guard lock(mutex);
    for (auto& session : sessions) Wake(*session);
  }

  static void Wake(Session& session) {
    const std::uint64_t one = 1;
    (void)!::write(session.wakeup.get(), &one, sizeof(one));
  }

  void Die() {
    std::vector<Session*> dying;
    {
      std::lock_guard lock(mutex);
      for (auto& session : sessions) dying.push_back(session.get());
    }
    // Without the lock, which the engines take, too.
    for (Session* session : dying) {
      session->stop = true;
      Wake(*session);
      if (session->engine.joinable()) session->engine.join();
    }
    std::lock_guard lock(mutex);
    for (Session* session : dying) session->lifeline.Reset();
    for (auto& cut : grpc_cuts) ::shutdown(cut.get(), SHUT_RDWR);
    grpc_cuts.clear();
  }

  bool Authentic(const grpc::ServerContext& context) const {
    const auto& metadata = context.client_metadata();
    const auto token = metadata.find(kSessionTokenKey);
    return token != metadata.end() && token->second == kToken;
  }

  grpc::Status Join(grpc::ServerContext* context, const v1::JoinRequest* request,
                    v1::JoinReply* reply) override {
    if (!Authentic(*context)) return {grpc::StatusCode::UNAUTHENTICATED, "no token"};
    {
      std::lock_guard lock(mutex);
      ++joins;
      join = {request->job_id(),
              request->rank(),
              request->size(),
              request->local_rank(),
              request->local_size(),
              request->rendezvous(),
              request->secret(),
              request->start_timeout_ms(),
              request->operation_timeout_ms(),
              request->fusion_threshold_bytes()};
      rank = request->rank();
    }
    while (settings.join_hangs && !context->IsCancelled() && !stopping) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (!settings.join_failure.ok()) {
      return {static_cast<grpc::StatusCode>(settings.join_failure.code()),
              std::string(settings.join_failure.message())};
    }
    reply->set_communicator(3);
    reply->set_generation(9);
    reply->set_node_count(request->size() / std::max(request->local_size(), 1));
    reply->set_cross_size(reply->node_count());
    reply->set_node_name("fake-node");
    reply->set_daemon_version("1.2.3");
    reply->set_homogeneous(true);
    return grpc::Status::OK;
  }

  grpc::Status RegisterTensors(grpc::ServerContext* context,
                               const v1::RegisterTensorsRequest* request,
                               v1::RegisterTensorsReply* reply) override {
    if (!Authentic(*context)) return {grpc::StatusCode::UNAUTHENTICATED, "no token"};
    std::lock_guard lock(mutex);
    ++registers;
    for (const auto& tensor : request->tensors()) {
      if (tensor.communicator() != 3) return {grpc::StatusCode::NOT_FOUND, "no communicator"};
      const std::string key = tensor.SerializeAsString();
      const auto [number, added] = numbers.emplace(key, 1000 + numbers.size());
      tensors[number->second] = {static_cast<CollectiveKind>(tensor.kind()),
                                 static_cast<DataType>(tensor.data_type()),
                                 tensor.root_rank() == rank};
      reply->add_registrations(number->second);
      reply->add_tensors(0);
      reply->add_metas(0);
    }
    return grpc::Status::OK;
  }

  grpc::Status Leave(grpc::ServerContext* context, const v1::LeaveRequest*,
                     v1::LeaveReply*) override {
    if (!Authentic(*context)) return {grpc::StatusCode::UNAUTHENTICATED, "no token"};
    std::lock_guard lock(mutex);
    ++leaves;
    return grpc::Status::OK;
  }

  const FakeRingdSettings settings;
  std::string folder;
  std::string socket;
  UniqueFd listener;
  std::unique_ptr<grpc::Server> server;
  std::atomic<bool> stopping{false};
  std::atomic<bool> holding{false};
  std::atomic<int> wakeups{0};
  std::thread acceptor;

  mutable std::mutex mutex;
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<UniqueFd> grpc_cuts;
  absl::Status operation_status;
  std::map<std::string, std::uint32_t> numbers;
  std::map<std::uint32_t, RegisteredTensor> tensors;
  std::vector<Submission> seen;
  SeenJoin join;
  std::int32_t rank = 0;
  int joins = 0;
  int registers = 0;
  int leaves = 0;
};

FakeRingd::FakeRingd(const FakeRingdSettings& settings)
    : state_(std::make_unique<State>(settings)) {}
FakeRingd::~FakeRingd() = default;

const std::string& FakeRingd::socket() const { return state_->socket; }

void FakeRingd::Hold() { state_->holding = true; }

void FakeRingd::Release() {
  state_->holding = false;
  state_->WakeEngines();
}

void FakeRingd::FailOperations(const absl::Status& status) {
  std::lock_guard lock(state_->mutex);
  state_->operation_status = status;
}

void FakeRingd::PushCompletion(std::uint64_t sequence, std::int32_t status) {
  std::lock_guard lock(state_->mutex);
  CompletionRecord record{};
  record.sequence = sequence;
  record.status = status;
  record.error_slot = kErrorTextSlots;
  State::Push(*state_->sessions.front(), record);
  state_->sessions.front()->view.header->completions.Ring();
}

void FakeRingd::SendNotice(std::uint32_t kind, const std::string& text) {
  const NoticeHeader header{kind, static_cast<std::uint32_t>(text.size())};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  SendRaw(bytes + text);
}

void FakeRingd::SendRaw(const std::string& bytes) {
  std::lock_guard lock(state_->mutex);
  for (auto& session : state_->sessions) {
    (void)SendWithFds(session->lifeline.get(), std::as_bytes(std::span(bytes)), {}, Soon());
  }
}

void FakeRingd::Die() { state_->Die(); }

SeenJoin FakeRingd::last_join() const {
  std::lock_guard lock(state_->mutex);
  return state_->join;
}

int FakeRingd::join_calls() const {
  std::lock_guard lock(state_->mutex);
  return state_->joins;
}

int FakeRingd::register_calls() const {
  std::lock_guard lock(state_->mutex);
  return state_->registers;
}

int FakeRingd::leave_calls() const {
  std::lock_guard lock(state_->mutex);
  return state_->leaves;
}

std::vector<Submission> FakeRingd::submissions() const {
  std::lock_guard lock(state_->mutex);
  return state_->seen;
}

int FakeRingd::wakeups() const { return state_->wakeups; }

int FakeRingd::live_sessions() const {
  std::lock_guard lock(state_->mutex);
  int live = 0;
  for (const auto& session : state_->sessions) {
    pollfd entry{session->lifeline.get(), POLLIN, 0};
    const bool hung_up = ::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLHUP | POLLIN)) != 0;
    if (session->lifeline.valid() && !hung_up) ++live;
  }
  return live;
}

}  // namespace ringd
