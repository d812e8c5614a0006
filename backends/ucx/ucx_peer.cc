#include "backends/ucx/ucx_peer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/ucx/ucx_handles.h"

namespace ringd {

UcxPeer::~UcxPeer() {
  DropWaiting([](const UcxSend&) { return true; });
}

void UcxPeer::Connect(absl::string_view worker_address) noexcept {
  worker_address_ = std::string(worker_address);
  AddMissingStreams();
}

void UcxPeer::AddMissingStreams() noexcept {
  if (lost()) return;
  in_progress_.reserve(kPerStream * (streams_needed() + 1));
  for (std::size_t i = 0; i < streams_needed(); ++i) {
    if (i == streams_.size()) streams_.emplace_back(static_cast<std::uint32_t>(i));
    UcxStream& stream = streams_[i];
    if (!stream.has_ended()) continue;
    const ucs_status_t status = stream.Open(worker_, worker_address_, &UcxPeer::OnError, this);
    if (i == 0) {
      if (status != UCS_OK) return Fail(status);
    } else if (status == UCS_OK) {
      stream.Greet();
    } else {
      stream.Refuse(status);
      GiveUpFurtherStream(stream);
    }
  }
}

void UcxPeer::CloseRefusedStreams() noexcept {
  for (UcxStream& stream : streams_) {
    if (stream.is_open() && stream.is_refused()) GiveUpFurtherStream(stream);
  }
}

void UcxPeer::GiveUpFurtherStream(UcxStream& stream) noexcept {
  stream.BeginClose();
  news_ = absl::StrCat("got no further connection: ", ucs_status_string(stream.refusal()));
}

UcxFlow* UcxPeer::AddFlow(const LineShare& share) noexcept {
  UcxFlow* const flow = bulk_.AddFlow(share);
  // Urgent messages keep the connection that there is.
  AddMissingStreams();
  return flow;
}

void UcxPeer::OnError(void* self, ucp_ep_h endpoint, ucs_status_t status) {
  UcxPeer& peer = *static_cast<UcxPeer*>(self);
  for (UcxStream& stream : peer.streams_) {
    if (stream.endpoint() != endpoint) continue;
    if (stream.index() > 0 && !stream.is_connected()) return stream.Refuse(status);
    return peer.Fail(status);
  }
}

void UcxPeer::Fail(ucs_status_t status) noexcept {
  if (lost_status_ == UCS_OK) lost_status_ = status == UCS_OK ? UCS_ERR_CONNECTION_RESET : status;
}

bool UcxPeer::Send(const void* wire, UcxFlow& flow, NodeIndex to, const MessageHeader& header,
                   std::span<const std::byte> payload, SendPriority priority,
                   SendObserver* observer) noexcept {
  if (lost()) return true;
  UcxSend* const send = pool_.Take();
  send->Set(to, header, payload, observer);
  send->wire = wire;
  send->peer = this;
  if (priority == SendPriority::kUrgent) return StartOrQueueUrgent(*send);
  const bool first = bulk_.empty();
  bulk_.Push(flow, *send);
  // Who else wants the line is known when everybody has had a turn.
  if (!first || is_shared()) return false;
  UcxStream* const stream = FindStream(SendPriority::kBulk);
  if (stream == nullptr) return false;
  if (!Start(*stream, bulk_.Pop())) return false;
  pool_.GiveBack(send);
  return true;
}

bool UcxPeer::StartOrQueueUrgent(UcxSend& send) noexcept {
  if (urgent_.empty()) {
    if (UcxStream* const stream = FindStream(SendPriority::kUrgent)) {
      if (!Start(*stream, send)) return false;
      pool_.GiveBack(&send);
      return true;
    }
  }
  urgent_.PushBack(send);
  return false;
}

UcxStream* UcxPeer::FindStream(SendPriority priority) noexcept {
  if (priority == SendPriority::kUrgent) {
    return streams_[0].in_progress < kPerStream ? &streams_[0] : nullptr;
  }
  const std::size_t first = first_bulk_stream();
  const std::uint32_t limit = is_shared() ? kPerSharedStream : kPerStream;
  bool any_usable = false;
  for (std::size_t tried = 0; tried < bulk_streams_; ++tried) {
    const std::size_t at = first + next_stream_++ % bulk_streams_;
    if (!IsUsable(at)) continue;
    any_usable = true;
    if (streams_[at].in_progress < limit) return &streams_[at];
  }
  return !any_usable && streams_[0].in_progress < limit ? &streams_[0] : nullptr;
}

std::size_t UcxPeer::CountUsableBulkStreams() const noexcept {
  std::size_t count = 0;
  for (std::size_t i = first_bulk_stream(); i < streams_needed(); ++i) count += IsUsable(i) ? 1 : 0;
  return count;
}

bool UcxPeer::Start(UcxStream& stream, UcxSend& send) noexcept {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = &UcxPeer::OnSendDone;
  param.user_data = &send;
  send.stream = stream.index();
  ucs_status_ptr_t request =
      ucp_am_send_nbx(stream.endpoint(), kUcxMessageId, &send.header, sizeof(send.header),
                      send.payload.data(), send.payload.size(), &param);
  if (UCS_PTR_IS_ERR(request)) {
    Fail(UCS_PTR_STATUS(request));
    return true;
  }
  if (request == nullptr) {
    stream.NoteConnected();
    return true;
  }
  ++stream.in_progress;
  in_progress_.push_back(&send);
  return false;
}

void UcxPeer::OnSendDone(void* request, ucs_status_t status, void* user_data) {
  UcxSend* const send = static_cast<UcxSend*>(user_data);
  UcxPeer& peer = *send->peer;
  ucp_request_free(request);
  UcxStream& stream = peer.streams_[send->stream];
  --stream.in_progress;
  if (status == UCS_OK) {
    stream.NoteConnected();
  } else {
    peer.Fail(status);
  }
  auto& list = peer.in_progress_;
  *std::find(list.begin(), list.end(), send) = list.back();
  list.pop_back();
  peer.pool_.Finish(*send);
  if (peer.lost()) return;
  if (peer.is_shared()) {
    peer.AdvanceUrgent();
  } else {
    peer.Advance();
  }
}

std::size_t UcxPeer::Advance() noexcept {
  std::size_t started = AdvanceUrgent();
  while (!bulk_.empty() && !lost()) {
    UcxStream* const stream = FindStream(SendPriority::kBulk);
    if (stream == nullptr) break;
    UcxSend& send = bulk_.Pop();
    ++started;
    if (Start(*stream, send)) pool_.Finish(send);
  }
  return started;
}

std::size_t UcxPeer::AdvanceUrgent() noexcept {
  std::size_t started = 0;
  while (!urgent_.empty() && !lost()) {
    UcxStream* const stream = FindStream(SendPriority::kUrgent);
    if (stream == nullptr) break;
    UcxSend& send = urgent_.PopFront();
    ++started;
    if (Start(*stream, send)) pool_.Finish(send);
  }
  return started;
}

bool UcxPeer::CanAdvance() noexcept {
  if (lost()) return false;
  return (!urgent_.empty() && FindStream(SendPriority::kUrgent) != nullptr) ||
         (!bulk_.empty() && FindStream(SendPriority::kBulk) != nullptr);
}

template <typename Predicate>
void UcxPeer::DropWaiting(Predicate predicate) noexcept {
  const auto finish = [this](UcxSend& send) { pool_.Finish(send); };
  urgent_.RemoveIf(predicate, finish);
  bulk_.RemoveIf(predicate, finish);
}

void UcxPeer::Withdraw(SendObserver* observer) noexcept {
  DropWaiting([observer](const UcxSend& send) { return send.observer == observer; });
}

void UcxPeer::WithdrawWire(const void* wire) noexcept {
  DropWaiting([wire](const UcxSend& send) { return send.wire == wire; });
}

std::size_t UcxPeer::InProgress(const void* wire) const noexcept {
  return static_cast<std::size_t>(
      std::count_if(in_progress_.begin(), in_progress_.end(),
                    [wire](const UcxSend* send) { return send->wire == wire; }));
}

void UcxPeer::BeginFlush() noexcept {
  for (UcxStream& stream : streams_) stream.BeginFlush();
}

bool UcxPeer::is_flushed() noexcept {
  return in_progress_.empty() && std::all_of(streams_.begin(), streams_.end(),
                                             [](UcxStream& stream) { return stream.is_flushed(); });
}

bool UcxPeer::is_connected() const noexcept {
  return std::all_of(streams_.begin(), streams_.end(), [](const UcxStream& stream) {
    return !stream.is_open() || stream.is_connected();
  });
}

void UcxPeer::BeginClose() noexcept {
  DropWaiting([](const UcxSend&) { return true; });
  for (UcxStream& stream : streams_) stream.BeginClose();
}

bool UcxPeer::is_closed() noexcept {
  return in_progress_.empty() && std::all_of(streams_.begin(), streams_.end(),
                                             [](UcxStream& stream) { return stream.has_ended(); });
}

NeighbourLine UcxPeer::Describe() const {
  const bool open = !streams_.empty() && streams_[0].is_open() && !lost();
  if (!open) return {};
  NeighbourLine line;
  line.transports = DescribeUcpEndpoint(streams_[0].endpoint());
  const auto usable = static_cast<int>(CountUsableBulkStreams());
  line.bulk_connections = std::max(usable, 1);
  line.connections = usable + static_cast<int>(first_bulk_stream());
  for (std::size_t i = 1; i < streams_needed(); ++i) {
    if (!streams_[i].is_refused()) continue;
    line.reason =
        absl::StrCat("a further one was refused (", ucs_status_string(streams_[i].refusal()), ")");
    break;
  }
  return line;
}

}  // namespace ringd
