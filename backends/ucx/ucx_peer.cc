#include "backends/ucx/ucx_peer.h"

#include <algorithm>
#include <utility>

#include "backends/ucx/ucx_handles.h"

namespace ringd {

UcxSendPool::~UcxSendPool() {
  while (free_ != nullptr) delete std::exchange(free_, free_->next);
}

UcxSend* UcxSendPool::Take() {
  if (free_ == nullptr) return new UcxSend;
  return std::exchange(free_, free_->next);
}

void UcxSendPool::GiveBack(UcxSend* send) noexcept {
  send->next = free_;
  free_ = send;
}

UcxPeer::~UcxPeer() {
  DropWaiting([](const UcxSend&) { return true; });
}

void UcxPeer::Connect(absl::string_view worker_address, const Streams& streams) noexcept {
  worker_address_ = std::string(worker_address);
  if (streams.count == kAutoStreams) {
    watch_ = std::make_unique<StreamWatch>();
  } else {
    two_or_more_ = streams.count > 1;
    bulk_streams_ = static_cast<std::size_t>(std::max(1, streams.count - 1));
    reason_ = streams.reason;
  }
  if (const ucs_status_t status = AddMissingStreams(); status != UCS_OK) Fail(status);
}

ucs_status_t UcxPeer::AddMissingStreams() noexcept {
  const std::size_t needed = first_bulk_stream() + bulk_streams_;
  in_progress_.reserve(kPerStream * (needed + 1));
  ucs_status_t status = lost_status_;
  while (streams_.size() < needed && status == UCS_OK) status = AddStream();
  return status;
}

ucs_status_t UcxPeer::AddStream() noexcept {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(worker_address_.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = &UcxPeer::OnError;
  params.err_handler.arg = this;
  ucp_ep_h endpoint = nullptr;
  const ucs_status_t status = ucp_ep_create(worker_, &params, &endpoint);
  if (status == UCS_OK) streams_.push_back({.endpoint = endpoint});
  return status;
}

UcxFlow* UcxPeer::AddFlow(std::uint32_t weight) noexcept {
  UcxFlow* const flow = bulk_.AddFlow(weight);
  // Urgent messages keep the connection that there is.
  if (const ucs_status_t status = AddMissingStreams(); status != UCS_OK) Fail(status);
  return flow;
}

void UcxPeer::OnError(void* self, ucp_ep_h /*endpoint*/, ucs_status_t status) {
  static_cast<UcxPeer*>(self)->Fail(status);
}

void UcxPeer::Fail(ucs_status_t status) noexcept {
  if (lost_status_ == UCS_OK) lost_status_ = status == UCS_OK ? UCS_ERR_CONNECTION_RESET : status;
}

bool UcxPeer::Send(const void* wire, UcxFlow& flow, NodeIndex to, const MessageHeader& header,
                   std::span<const std::byte> payload, SendPriority priority,
                   SendObserver* observer) noexcept {
  if (lost()) return true;
  UcxSend* const send = pool_.Take();
  send->next = nullptr;
  send->header = header;
  send->payload = payload;
  send->observer = observer;
  send->order = observer != nullptr ? observer->order() : 0;
  send->wire = wire;
  send->to = to;
  send->peer = this;
  if (priority == SendPriority::kUrgent) return StartOrQueueUrgent(*send);
  const bool first = bulk_.empty();
  bulk_.Push(flow, *send);
  // Who else wants the line is known when everybody has had a turn.
  if (!first || is_shared()) return false;
  Stream* const stream = FindStream(SendPriority::kBulk);
  if (stream == nullptr) return false;
  if (watch_ != nullptr) watch_->NoteBulk();
  if (!Start(*stream, bulk_.Pop())) return false;
  pool_.GiveBack(send);
  return true;
}

bool UcxPeer::StartOrQueueUrgent(UcxSend& send) noexcept {
  if (urgent_.head == nullptr) {
    if (Stream* const stream = FindStream(SendPriority::kUrgent)) {
      if (!Start(*stream, send)) return false;
      pool_.GiveBack(&send);
      return true;
    }
  }
  (urgent_.head == nullptr ? urgent_.head : urgent_.tail->next) = &send;
  urgent_.tail = &send;
  return false;
}

UcxPeer::Stream* UcxPeer::FindStream(SendPriority priority) noexcept {
  if (priority == SendPriority::kUrgent) {
    return streams_[0].in_progress < kPerStream ? &streams_[0] : nullptr;
  }
  const std::size_t first = first_bulk_stream();
  const std::uint32_t limit = is_shared() ? kPerSharedStream : kPerStream;
  for (std::size_t tried = 0; tried < bulk_streams_; ++tried) {
    Stream& stream = streams_[first + next_stream_++ % bulk_streams_];
    if (stream.in_progress < limit) return &stream;
  }
  return nullptr;
}

bool UcxPeer::HasIdleBulkStream() const noexcept {
  const auto first = streams_.begin() + static_cast<std::ptrdiff_t>(first_bulk_stream());
  return std::any_of(first, first + static_cast<std::ptrdiff_t>(bulk_streams_),
                     [](const Stream& stream) { return stream.in_progress == 0; });
}

bool UcxPeer::Start(Stream& stream, UcxSend& send) noexcept {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = &UcxPeer::OnSendDone;
  param.user_data = &send;
  send.stream = static_cast<std::uint32_t>(&stream - streams_.data());
  const bool is_tell_tale =
      watch_ != nullptr && stream.connected && send.payload.size() >= StreamWatch::kTellingBytes;
  const auto seen = is_tell_tale ? watch_->BeginWrite(send.stream) : std::nullopt;
  ucs_status_ptr_t request =
      ucp_am_send_nbx(stream.endpoint, kUcxMessageId, &send.header, sizeof(send.header),
                      send.payload.data(), send.payload.size(), &param);
  if (is_tell_tale) watch_->EndWrite(send.stream, seen);
  if (UCS_PTR_IS_ERR(request)) {
    Fail(UCS_PTR_STATUS(request));
    return true;
  }
  if (request == nullptr) {
    NoteConnected(stream);
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
  Stream& stream = peer.streams_[send->stream];
  --stream.in_progress;
  if (status == UCS_OK) {
    peer.NoteConnected(stream);
  } else {
    peer.Fail(status);
  }
  auto& list = peer.in_progress_;
  *std::find(list.begin(), list.end(), send) = list.back();
  list.pop_back();
  peer.Finish(*send);
  if (peer.lost()) return;
  if (peer.is_shared()) {
    peer.AdvanceUrgent();
  } else {
    peer.Advance();
  }
}

void UcxPeer::NoteConnected(Stream& stream) noexcept {
  if (std::exchange(stream.connected, true)) return;
  ++connections_;
}

void UcxPeer::Finish(UcxSend& send) noexcept {
  SendObserver* const observer = send.observer;
  const NodeIndex to = send.to;
  pool_.GiveBack(&send);
  if (observer != nullptr) observer->OnSent(to);
}

std::size_t UcxPeer::Advance() noexcept {
  std::size_t started = AdvanceUrgent();
  while (!bulk_.empty() && !lost()) {
    Stream* const stream = FindStream(SendPriority::kBulk);
    if (stream == nullptr) break;
    UcxSend& send = bulk_.Pop();
    ++started;
    if (watch_ != nullptr) watch_->NoteBulk();
    if (Start(*stream, send)) Finish(send);
  }
  return started;
}

std::size_t UcxPeer::AdvanceUrgent() noexcept {
  std::size_t started = 0;
  while (urgent_.head != nullptr && !lost()) {
    Stream* const stream = FindStream(SendPriority::kUrgent);
    if (stream == nullptr) break;
    UcxSend& send = *urgent_.head;
    urgent_.head = send.next;
    ++started;
    if (Start(*stream, send)) Finish(send);
  }
  return started;
}

bool UcxPeer::CanAdvance() noexcept {
  if (lost()) return false;
  return (urgent_.head != nullptr && FindStream(SendPriority::kUrgent) != nullptr) ||
         (!bulk_.empty() && FindStream(SendPriority::kBulk) != nullptr);
}

template <typename Predicate>
void UcxPeer::DropWaiting(Predicate predicate) noexcept {
  UcxSend** link = &urgent_.head;
  UcxSend* last = nullptr;
  while (UcxSend* const send = *link) {
    if (predicate(*send)) {
      *link = send->next;
      Finish(*send);
    } else {
      last = send;
      link = &send->next;
    }
  }
  urgent_.tail = last;
  bulk_.RemoveIf(predicate, [this](UcxSend& send) { Finish(send); });
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
  for (Stream& stream : streams_) {
    if (stream.endpoint == nullptr) continue;
    ucp_request_param_t param{};
    void* const request = ucp_ep_flush_nbx(stream.endpoint, &param);
    stream.flushing = UCS_PTR_IS_PTR(request) ? request : nullptr;
  }
}

bool UcxPeer::is_connected() const noexcept {
  return std::all_of(streams_.begin(), streams_.end(),
                     [](const Stream& stream) { return stream.connected; });
}

void UcxPeer::BeginClose() noexcept {
  DropWaiting([](const UcxSend&) { return true; });
  for (Stream& stream : streams_) {
    if (stream.endpoint == nullptr) continue;
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    void* const request = ucp_ep_close_nbx(stream.endpoint, &param);
    stream.endpoint = nullptr;
    stream.closing = UCS_PTR_IS_PTR(request) ? request : nullptr;
  }
}

bool UcxPeer::is_closed() noexcept {
  const bool open = std::any_of(streams_.begin(), streams_.end(),
                                [](const Stream& stream) { return stream.endpoint != nullptr; });
  return !open && Ended(&Stream::flushing) && Ended(&Stream::closing) && in_progress_.empty();
}

bool UcxPeer::Ended(void* Stream::*request) noexcept {
  bool ended = true;
  for (Stream& stream : streams_) {
    void*& pending = stream.*request;
    if (pending == nullptr) continue;
    if (ucp_request_check_status(pending) == UCS_INPROGRESS) {
      ended = false;
    } else {
      ucp_request_free(pending);
      pending = nullptr;
    }
  }
  return ended;
}

NeighbourLine UcxPeer::Describe() const {
  const bool open = !streams_.empty() && streams_[0].endpoint != nullptr && !lost();
  if (!open) return {};
  return {DescribeUcpEndpoint(streams_[0].endpoint),
          static_cast<int>(first_bulk_stream() + bulk_streams_), static_cast<int>(bulk_streams_),
          watch_ != nullptr ? watch_->Reason() : reason_};
}

void UcxPeer::NoteIdle(Clock::time_point now) noexcept {
  if (watch_ == nullptr || lost()) return;
  watch_->NoteIdle(now, bulk_.empty() && HasIdleBulkStream());
}

std::string UcxPeer::LookAtStreams(Clock::time_point now) noexcept {
  if (watch_ == nullptr || lost()) return "";
  const bool decided = watch_->Look(now, {first_bulk_stream(), bulk_streams_, is_shared()});
  if (const std::size_t before = bulk_streams_; watch_->connections() != before) {
    bulk_streams_ = watch_->connections();
    if (AddMissingStreams() != UCS_OK) {
      watch_->GiveUpTrial();
      bulk_streams_ = before;
    }
  }
  return decided ? watch_->DescribeTrial() : "";
}

}  // namespace ringd
