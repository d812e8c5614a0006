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

void UcxPeer::Connect(absl::string_view worker_address, int stream_count) noexcept {
  in_progress_.reserve(kPerStream * static_cast<std::size_t>(stream_count));
  for (int i = 0; i < stream_count; ++i) {
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                        UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(worker_address.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb = &UcxPeer::OnError;
    params.err_handler.arg = this;
    ucp_ep_h endpoint = nullptr;
    const ucs_status_t status = ucp_ep_create(worker_, &params, &endpoint);
    if (status != UCS_OK) {
      Fail(status);
      return;
    }
    streams_.push_back({.endpoint = endpoint});
  }
}

void UcxPeer::OnError(void* self, ucp_ep_h /*endpoint*/, ucs_status_t status) {
  static_cast<UcxPeer*>(self)->Fail(status);
}

void UcxPeer::Fail(ucs_status_t status) noexcept {
  if (lost_status_ == UCS_OK) lost_status_ = status == UCS_OK ? UCS_ERR_CONNECTION_RESET : status;
}

bool UcxPeer::Send(const void* wire, NodeIndex to, const MessageHeader& header,
                   std::span<const std::byte> payload, SendPriority priority,
                   SendObserver* observer) noexcept {
  if (lost()) return true;
  UcxSend* const send = pool_.Take();
  send->next = nullptr;
  send->header = header;
  send->payload = payload;
  send->observer = observer;
  send->wire = wire;
  send->to = to;
  send->peer = this;
  Queue& queue = waiting_[static_cast<int>(priority)];
  if (queue.head == nullptr) {
    Stream* const stream = FindStream(priority);
    if (stream != nullptr) {
      if (!Start(*stream, *send)) return false;
      pool_.GiveBack(send);
      return true;
    }
  }
  (queue.head == nullptr ? queue.head : queue.tail->next) = send;
  queue.tail = send;
  return false;
}

UcxPeer::Stream* UcxPeer::FindStream(SendPriority priority) noexcept {
  // The first stream is for urgent messages, if there are others to carry the bulk.
  const auto count = static_cast<std::uint32_t>(streams_.size());
  if (count == 1 || priority == SendPriority::kUrgent) {
    return streams_[0].in_progress < kPerStream ? &streams_[0] : nullptr;
  }
  for (std::uint32_t tried = 1; tried < count; ++tried) {
    Stream& stream = streams_[1 + next_stream_++ % (count - 1)];
    if (stream.in_progress < kPerStream) return &stream;
  }
  return nullptr;
}

bool UcxPeer::Start(Stream& stream, UcxSend& send) noexcept {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = &UcxPeer::OnSendDone;
  param.user_data = &send;
  send.stream = static_cast<std::uint32_t>(&stream - streams_.data());
  ucs_status_ptr_t request =
      ucp_am_send_nbx(stream.endpoint, kUcxMessageId, &send.header, sizeof(send.header),
                      send.payload.data(), send.payload.size(), &param);
  if (UCS_PTR_IS_ERR(request)) {
    Fail(UCS_PTR_STATUS(request));
    return true;
  }
  if (request == nullptr) {
    stream.connected = true;
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
    stream.connected = true;
  } else {
    peer.Fail(status);
  }
  auto& list = peer.in_progress_;
  *std::find(list.begin(), list.end(), send) = list.back();
  list.pop_back();
  peer.Finish(*send);
  if (!peer.lost()) peer.Advance();
}

void UcxPeer::Finish(UcxSend& send) noexcept {
  SendObserver* const observer = send.observer;
  const NodeIndex to = send.to;
  pool_.GiveBack(&send);
  if (observer != nullptr) observer->OnSent(to);
}

std::size_t UcxPeer::Advance() noexcept {
  std::size_t started = 0;
  for (const SendPriority priority : {SendPriority::kUrgent, SendPriority::kBulk}) {
    Queue& queue = waiting_[static_cast<int>(priority)];
    while (queue.head != nullptr && !lost()) {
      Stream* const stream = FindStream(priority);
      if (stream == nullptr) break;
      UcxSend& send = *queue.head;
      queue.head = send.next;
      ++started;
      if (Start(*stream, send)) Finish(send);
    }
  }
  return started;
}

bool UcxPeer::HasWaiting() const noexcept {
  return waiting_[0].head != nullptr || waiting_[1].head != nullptr;
}

template <typename Predicate>
void UcxPeer::DropWaiting(Predicate predicate) noexcept {
  for (Queue& queue : waiting_) {
    UcxSend** link = &queue.head;
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
    queue.tail = last;
  }
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

std::string UcxPeer::DescribeTransports() const {
  const bool open = !streams_.empty() && streams_[0].endpoint != nullptr && !lost();
  return open ? DescribeUcpEndpoint(streams_[0].endpoint) : "";
}

}  // namespace ringd
