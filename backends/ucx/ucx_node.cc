#include "backends/ucx/ucx_node.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/collectives/wire_spec.h"
#include "backends/ucx/ucx_address.h"
#include "backends/ucx/ucx_transport.h"
#include "backends/ucx/ucx_wire.h"
#include "proto/base/clock.h"

namespace ringd {
namespace {

using std::chrono::milliseconds;

// How long a peer may leave what it was sent unread when a communicator closes amid an operation.
constexpr milliseconds kCloseWirePatience{1000};
// How long the last bytes may take to leave when the transport goes.
constexpr milliseconds kFlushPatience{250};
// How long UCX may take to tear connections down: it waits for nobody, so this is never used up.
constexpr milliseconds kClosePatience{1000};
constexpr int kMaxStreams = 64;  // for bulk, to a neighbour

// Drives `worker` until `done()` or the time is over.
template <typename Done>
bool ProgressUntil(ucp_worker_h worker, milliseconds limit, Done done) {
  const Clock::time_point deadline = Clock::now() + limit;
  while (!done()) {
    if (Clock::now() >= deadline) return false;
    ucp_worker_progress(worker);
  }
  return true;
}

bool IsUcxAddress(absl::string_view address) { return UnwrapWorkerAddress(address).has_value(); }

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> CreateUcxTransport(const TransportOptions& options) {
  return UcxNode::Create(options);
}

absl::StatusOr<std::unique_ptr<Transport>> UcxNode::Create(const TransportOptions& options) {
  const int streams = options.streams_per_neighbour;
  if (streams < 0 || streams > kMaxStreams) {
    return absl::InvalidArgumentError(
        absl::StrCat("streams per neighbour must be 1 to ", kMaxStreams, ", not ", streams));
  }
  absl::StatusOr<UcpContext> context = CreateUcpContext(options);
  if (!context.ok()) return context.status();
  absl::StatusOr<UcpWorker> worker = CreateUcpWorker(context->get());
  if (!worker.ok()) return worker.status();
  const std::size_t bulk_streams = streams == kAutoStreams ? 1 : static_cast<std::size_t>(streams);
  std::unique_ptr<UcxNode> node(
      new UcxNode(*std::move(context), *std::move(worker), bulk_streams, options.log));
  if (absl::Status status = node->Listen(); !status.ok()) return status;
  return node;
}

UcxNode::UcxNode(UcpContext context, UcpWorker worker, std::size_t bulk_streams,
                 std::function<void(const std::string&)> log)
    : context_(std::move(context)),
      worker_(std::move(worker)),
      bulk_streams_(bulk_streams),
      log_(std::move(log)) {}

absl::Status UcxNode::Listen() {
  absl::StatusOr<std::string> address = UcpWorkerAddress(worker_.get());
  if (!address.ok()) return address.status();
  address_ = WrapWorkerAddress(*address);
  ucs_status_t status = ucp_worker_get_efd(worker_.get(), &event_fd_);
  if (status != UCS_OK) return UcxError("asking UCX for its event descriptor", status);
  ucp_am_handler_param_t param{};
  param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                     UCP_AM_HANDLER_PARAM_FIELD_ARG;
  param.id = kUcxMessageId;
  param.cb = &UcxNode::OnActiveMessage;
  param.arg = this;
  status = ucp_worker_set_am_recv_handler(worker_.get(), &param);
  if (status != UCS_OK) return UcxError("registering with UCX for messages", status);
  return absl::OkStatus();
}

UcxNode::~UcxNode() {
  for (auto& [address, peer] : peers_) {
    if (!peer->lost()) peer->BeginFlush();
  }
  ProgressUntil(worker_.get(), kFlushPatience, [this] {
    return std::all_of(peers_.begin(), peers_.end(),
                       [](const auto& entry) { return entry.second->is_flushed(); });
  });
  // UCX 1.13 ends the process when a worker is destroyed amid the handshake with a node that does
  // not answer. Then it is left to the operating system, which is about to clean up after all of
  // us.
  const bool amid_handshake = std::any_of(peers_.begin(), peers_.end(), [](const auto& entry) {
    UcxPeer& peer = *entry.second;
    return !peer.lost() && !peer.is_flushed() && !peer.is_connected();
  });
  if (amid_handshake) {
    [[maybe_unused]] ucp_worker_h left_worker = worker_.release();
    [[maybe_unused]] ucp_context_h left_context = context_.release();
    return;
  }
  for (auto& [address, peer] : peers_) {
    peer->BeginClose();
    closing_.push_back(std::move(peer));
  }
  peers_.clear();
  ProgressUntil(worker_.get(), kClosePatience, [this] {
    ForgetClosedPeers();
    return closing_.empty();
  });
}

absl::StatusOr<std::unique_ptr<Communicator>> UcxNode::CreateCommunicator(
    const CommunicatorSpec& spec) {
  if (absl::Status status = CheckSpec(spec, &IsUcxAddress, "UCX"); !status.ok()) return status;
  const WireKey key{spec.wire_id, spec.self.value()};
  if (ends_.contains(key)) {
    return absl::AlreadyExistsError(
        absl::StrCat("node ", key.node, " of this job's generation is open already"));
  }
  EarlyMessageList orphans;
  if (!orphans_.Take(key, orphans)) {
    return absl::UnavailableError(
        "messages for this communicator came so long before it was made that they were dropped");
  }
  auto wire = std::make_unique<UcxWire>(*this, key, spec);
  // The ring's neighbours now: they are used by most operations, and their loss should be
  // noticed also when nothing is sent.
  for (const NodeIndex node : RingNeighbours(spec)) {
    if (wire->PeerOf(node).lost()) {
      orphans.Clear(early_pool_);
      return absl::UnavailableError(
          absl::StrCat(NodeNameOf(spec, static_cast<std::size_t>(node.value())),
                       " can't be reached: ", wire->PeerOf(node).LossReason()));
    }
  }
  UcxWire* const borrowed_wire = wire.get();
  auto communicator = std::make_unique<WireCommunicator>(spec, std::move(wire), early_pool_, busy_);
  ends_[key] = {borrowed_wire, communicator.get()};
  while (EarlyMessage* message = orphans.PopFront()) {
    communicator->OnMessage(message->header, message->payload());
    early_pool_.GiveBack(message);
  }
  return communicator;
}

std::shared_ptr<UcxPeer> UcxNode::FindPeer(const std::string& address, const std::string& name) {
  std::shared_ptr<UcxPeer>& peer = peers_[address];
  if (peer == nullptr) {
    peer = std::make_shared<UcxPeer>(name, worker_.get(), send_pool_, bulk_streams_);
    peer->Connect(*UnwrapWorkerAddress(address));
  }
  return peer;
}

std::size_t UcxNode::Progress() noexcept {
  std::size_t work = ucp_worker_progress(worker_.get());
  ReportLostPeers();
  if (!closing_.empty()) ForgetClosedPeers();
  work += busy_.Advance();
  // What the communicators have handed over by now takes its turn.
  for (auto& [address, peer] : peers_) {
    peer->CloseRefusedStreams();
    work += peer->Advance();
    if (peer->has_news()) TellNews(*peer);
  }
  return work;
}

void UcxNode::TellNews(UcxPeer& peer) noexcept {
  const std::string news = peer.TakeNews();
  if (log_) log_(absl::StrCat("the line to ", peer.name(), " ", news));
}

bool UcxNode::Arm() noexcept {
  for (const auto& [address, peer] : peers_) {
    if (peer->lost() || peer->CanAdvance()) return false;
  }
  if (busy_.HasPendingWork()) return false;
  if (!closing_.empty()) return false;
  return ucp_worker_arm(worker_.get()) == UCS_OK;
}

ucs_status_t UcxNode::OnActiveMessage(void* self, const void* header, std::size_t header_length,
                                      void* data, std::size_t length,
                                      const ucp_am_recv_param_t* param) {
  UcxNode& node = *static_cast<UcxNode*>(self);
  MessageHeader checked;
  if (header_length != sizeof(checked) || length > kMaxPayloadBytes) return UCS_OK;
  std::memcpy(&checked, header, sizeof(checked));
  if (checked.magic != kMessageMagic ||
      (checked.type != MessageType::kData && checked.type != MessageType::kGrant)) {
    return UCS_OK;
  }
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
    return node.Fetch(checked, data, length);
  }
  node.Route(checked, {static_cast<const std::byte*>(data), length});
  return UCS_OK;
}

ucs_status_t UcxNode::Fetch(const MessageHeader& header, void* data, std::size_t length) {
  auto* const landing = new Landing{this, early_pool_.Take(header, length)};
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.cb.recv_am = &UcxNode::OnLanded;
  param.user_data = landing;
  ucs_status_ptr_t request =
      ucp_am_recv_data_nbx(worker_.get(), data, landing->message->data(), length, &param);
  if (!UCS_PTR_IS_ERR(request)) return UCS_INPROGRESS;
  LoseMessage(header, UCS_PTR_STATUS(request));
  early_pool_.GiveBack(landing->message);
  delete landing;
  return UCS_OK;
}

void UcxNode::OnLanded(void* request, ucs_status_t status, std::size_t /*length*/,
                       void* user_data) {
  const std::unique_ptr<Landing> landing(static_cast<Landing*>(user_data));
  ucp_request_free(request);
  if (status == UCS_OK) {
    landing->node->Route(landing->message->header, landing->message->payload());
  } else {
    landing->node->LoseMessage(landing->message->header, status);
  }
  landing->node->early_pool_.GiveBack(landing->message);
}

// Its sender may be there still, and nothing at its endpoint be wrong.
void UcxNode::LoseMessage(const MessageHeader& header, ucs_status_t status) noexcept {
  const auto found = ends_.find({header.wire_id, header.destination});
  if (found == ends_.end()) return;  // its endpoint tells, or nobody needs it any more
  found->second.communicator->OnMessageLost(header, ucs_status_string(status));
}

void UcxNode::Route(const MessageHeader& header, std::span<const std::byte> payload) noexcept {
  const WireKey key{header.wire_id, header.destination};
  if (const auto found = ends_.find(key); found != ends_.end()) {
    found->second.communicator->OnMessage(header, payload);
  } else {
    orphans_.Hold(key, header, payload);
  }
}

void UcxNode::ReportLostPeers() noexcept {
  for (auto it = peers_.begin(); it != peers_.end();) {
    if (!it->second->lost()) {
      ++it;
      continue;
    }
    const std::shared_ptr<UcxPeer> peer = std::move(it->second);
    peers_.erase(it++);
    closing_.push_back(peer);
    peer->BeginClose();
    for (auto& [key, end] : ends_) {
      if (const NodeIndex node = end.wire->NodeAt(*peer); node.value() >= 0) {
        end.communicator->OnNodeLost(node, peer->LossReason());
      }
    }
  }
}

void UcxNode::ForgetClosedPeers() noexcept {
  std::erase_if(closing_, [](const std::shared_ptr<UcxPeer>& peer) { return peer->is_closed(); });
}

void UcxNode::CloseWire(const WireKey& key, UcxWire& wire) noexcept {
  ends_.erase(key);
  orphans_.Retire(key);
  const auto peers = wire.peers();
  const auto all_sent = [&] {
    ReportLostPeers();
    return std::all_of(peers.begin(), peers.end(), [&](const std::shared_ptr<UcxPeer>& peer) {
      return peer == nullptr || peer->InProgress(&wire) == 0;
    });
  };
  for (const auto& peer : peers) {
    if (peer != nullptr) peer->WithdrawWire(&wire);
  }
  if (!ProgressUntil(worker_.get(), kCloseWirePatience, all_sent)) {
    for (const auto& peer : peers) {
      if (peer != nullptr && peer->InProgress(&wire) > 0) peer->Fail(UCS_ERR_TIMED_OUT);
    }
    ProgressUntil(worker_.get(), kCloseWirePatience, all_sent);
  }
  wire.LeavePeers();
}

}  // namespace ringd
