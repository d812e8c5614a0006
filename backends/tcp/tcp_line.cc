#include "backends/tcp/tcp_line.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "backends/socket_options.h"
#include "backends/tcp/tcp_socket.h"

namespace ringd {

TcpLine::TcpLine(const FrameScope& scope, const LineShare& share, TcpRemote& remote, Means& means,
                 User& user)
    : scope_(scope), remote_(remote), means_(means), user_(user) {
  flow_ = &remote.Join(*this, share);
}

TcpLine::~TcpLine() { Shut(); }

void TcpLine::Adopt(UniqueFd socket, std::uint32_t stream, bool dialled_here) {
  if (flow_ == nullptr || !failure_.ok()) return;
  Connections& set = sets_[dialled_here ? 1 : 0];
  if (stream > kMaxStreams || (stream < set.size() && set[stream] != nullptr)) {
    Fail(absl::InternalError(absl::StrCat("opens a connection of number ", stream, " that is ",
                                          stream > kMaxStreams ? "none" : "there already")));
    return;
  }
  PrepareSocket(socket.get(), means_.congestion_control);
  LimitUnsent(socket.get(), remote_.unsent_bytes());
  interfaces_.insert(absl::StrCat("tcp/", InterfaceOf(socket.get())));
  if (set.size() <= stream) set.resize(stream + 1);
  TcpConnection::Owner& owner = *this;
  set[stream] =
      std::make_unique<TcpConnection>(std::move(socket), scope_, stream, means_.poller, owner);
  if (absl::Status status = set[stream]->Start(); !status.ok()) {
    return Fail(absl::UnavailableError(status.message()));
  }
  UseIfWhole(set);
}

// Who dialled may have fewer streams than this side would, so any one for bulk will do.
bool TcpLine::IsUsable(const Connections& set) noexcept {
  return set.size() > 1 && set[0] != nullptr &&
         std::any_of(set.begin() + 1, set.end(), [](const auto& one) { return one != nullptr; });
}

void TcpLine::UseIfWhole(Connections& set) noexcept {
  if (in_use_ == nullptr && IsUsable(set)) in_use_ = &set;
}

bool TcpLine::Send(const MessageHeader& header, std::span<const std::byte> payload,
                   SendPriority priority, SendObserver* observer) noexcept {
  if (flow_ == nullptr || !failure_.ok() || peer_left_) return true;
  TcpSend* const send = means_.sends.Take();
  send->Set(NodeIndex(scope_.peer), header, payload, observer);
  send->line = this;
  TcpConnection* connection = nullptr;
  if (priority == SendPriority::kUrgent) {
    const bool at_once = in_use_ != nullptr && urgent_.empty() && (*in_use_)[0]->CanBegin();
    if (at_once) connection = (*in_use_)[0].get();
  } else if (flow_->empty() && remote_.IsFree()) {
    // Who else wants the way is known when everybody has had a turn; here is nobody else.
    connection = FindBulkConnection();
  }
  if (connection != nullptr) {
    const bool done = Begin(*connection, *send);
    if (priority == SendPriority::kBulk && !CanBeginBulk()) remote_.NoteFull(*this);
    if (done) means_.sends.GiveBack(send);
    return done;
  }
  if (priority == SendPriority::kUrgent) {
    urgent_.PushBack(*send);
  } else {
    remote_.Push(*flow_, *send);
  }
  return false;
}

bool TcpLine::Begin(TcpConnection& connection, TcpSend& send) noexcept {
  if (connection.stream() > 0) next_bulk_ = connection.stream();
  const bool done = connection.Begin(send);
  NoteEnd(connection);
  return done;
}

void TcpLine::BeginBulk(TcpSend& send) noexcept {
  if (Begin(*FindBulkConnection(), send)) means_.sends.Finish(send);
}

void TcpLine::AdvanceUrgent() noexcept {
  while (!urgent_.empty() && (*in_use_)[0]->CanBegin()) {
    TcpSend& send = urgent_.PopFront();
    if (Begin(*(*in_use_)[0], send)) means_.sends.Finish(send);
  }
}

// The next after the one that was used last: what has much to write can't begin.
TcpConnection* TcpLine::FindBulkConnection() const noexcept {
  if (in_use_ == nullptr || !failure_.ok()) return nullptr;
  const std::size_t count = in_use_->size() - 1;
  for (std::size_t tried = 0; tried < count; ++tried) {
    TcpConnection* const connection = (*in_use_)[1 + (next_bulk_ + tried) % count].get();
    if (connection != nullptr && connection->CanBegin()) return connection;
  }
  return nullptr;
}

void TcpLine::OnReady(TcpConnection& connection) noexcept {
  if (TcpSend* const sent = connection.Continue()) {
    means_.sends.Finish(*sent);
  }
  if (in_use_ != nullptr && failure_.ok()) {
    AdvanceUrgent();
    if (flow_->is_set_aside() && CanBeginBulk()) remote_.Readmit(*flow_);
    if (!remote_.is_shared()) remote_.Advance();
  }
  connection.Read(kTurnBytes);
  if (connection.peer_left() && !peer_left_) OnPeerLeft();
  NoteEnd(connection);
}

void TcpLine::OnPeerLeft() noexcept {
  peer_left_ = true;
  DropAll();
}

void TcpLine::NoteEnd(const TcpConnection& connection) noexcept {
  if (!connection.ended()) return;
  // A node that has left in order drops what had not come up there, without a word on that. What it
  // took leave on stays until it goes itself.
  const bool is_leftover = peer_left_ && !connection.peer_left();
  if (is_leftover && absl::IsUnavailable(connection.end())) return;
  Fail(connection.end());
}

void TcpLine::Fail(const absl::Status& why) noexcept {
  if (!failure_.ok()) return;
  failure_ = why;
  user_.OnFailure(*this);
}

template <typename Predicate>
void TcpLine::DropWaiting(Predicate predicate) noexcept {
  const auto finish = [this](TcpSend& send) { means_.sends.Finish(send); };
  urgent_.RemoveIf(predicate, finish);
  remote_.RemoveIf(*flow_, predicate, finish);
}

template <typename TakeBack>
void TcpLine::TakeBackAll(TakeBack take_back) noexcept {
  for (Connections& set : sets_) {
    for (auto& connection : set) {
      if (connection == nullptr) continue;
      if (TcpSend* const send = take_back(*connection)) means_.sends.Finish(*send);
    }
  }
}

void TcpLine::Withdraw(const SendObserver* observer) noexcept {
  if (flow_ == nullptr) return;
  DropWaiting([observer](const TcpSend& send) { return send.observer == observer; });
  TakeBackAll([observer](TcpConnection& connection) { return connection.TakeBack(observer); });
}

void TcpLine::DropAll() noexcept {
  if (flow_ == nullptr) return;
  DropWaiting([](const TcpSend&) { return true; });
  TakeBackAll([](TcpConnection& connection) { return connection.TakeBack(nullptr); });
}

void TcpLine::LeaveRemote() noexcept {
  if (flow_ != nullptr) remote_.Leave(*this, *std::exchange(flow_, nullptr));
}

void TcpLine::Shut() noexcept {
  TakeBackAll([](TcpConnection& connection) { return connection.Abandon(); });
  DropAll();
  LeaveRemote();
  in_use_ = nullptr;
  for (Connections& set : sets_) set.clear();
}

std::vector<std::unique_ptr<TcpConnection>> TcpLine::Close() noexcept {
  DropAll();
  LeaveRemote();
  in_use_ = nullptr;
  Connections all;
  for (Connections& set : sets_) {
    for (auto& connection : set) {
      if (connection != nullptr) all.push_back(std::move(connection));
    }
    set.clear();
  }
  return all;
}

void TcpLine::LimitUnsentBytes(std::uint32_t bytes) noexcept {
  for (const Connections& set : sets_) {
    for (const auto& connection : set) {
      if (connection != nullptr) LimitUnsent(connection->fd(), bytes);
    }
  }
}

std::chrono::microseconds TcpLine::BulkBusyTime() const noexcept {
  std::chrono::microseconds sum{0};
  for (const Connections& set : sets_) {
    for (const auto& connection : set) {
      if (connection != nullptr && connection->stream() > 0) sum += BusyTimeOf(connection->fd());
    }
  }
  return sum;
}

NeighbourLine TcpLine::Describe() const {
  NeighbourLine line;
  if (in_use_ == nullptr) return line;
  line.transports = absl::StrJoin(interfaces_, ",");
  line.connections =
      static_cast<int>(std::count_if(in_use_->begin(), in_use_->end(),
                                     [](const auto& connection) { return connection != nullptr; }));
  line.bulk_connections = line.connections - 1;
  return line;
}

}  // namespace ringd
