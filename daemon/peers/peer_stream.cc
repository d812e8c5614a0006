#include "daemon/peers/peer_stream.h"

#include <grpcpp/channel.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace ringd {
namespace {

// gRPC sends a status as metadata, of which 8 KiB may be in a message, and writes any byte that is
// not ASCII as three.
constexpr std::size_t kMaxReasonBytes = 2048;
// From the connection, which both sides have proved, to the first word on it.
constexpr std::chrono::seconds kAnswerPatience{10};

std::string CutToLength(absl::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return std::string(text);
  std::size_t end = max_bytes;
  // Not in the middle of a UTF-8 character.
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end));
}

gpr_timespec FromNow(Clock::duration delay) {
  return gpr_time_add(
      gpr_now(GPR_CLOCK_MONOTONIC),
      gpr_time_from_nanos(std::chrono::duration_cast<std::chrono::nanoseconds>(delay).count(),
                          GPR_TIMESPAN));
}

// Calls Cut() on the stream after `delay`, if it still exists then. The alarm must not be set
// already.
template <typename Stream>
void CutAfter(grpc::Alarm& alarm, Clock::duration delay, std::weak_ptr<Stream> stream) {
  alarm.Set(FromNow(delay), [stream = std::move(stream)](bool fired) {
    if (!fired) return;
    if (const std::shared_ptr<Stream> alive = stream.lock()) alive->Cut();
  });
}

}  // namespace

grpc::Status ToGrpcTrailer(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.raw_code()),
                      CutToLength(status.message(), kMaxReasonBytes));
}

// ---- opened to here
// ------------------------------------------------------------------------------

void NodeStream::Begin(ExpectationId job, std::string from) {
  context_.events->OnNodeConnected(context_.id, job, std::move(from));
  StartSendInitialMetadata();  // tells the node that it is connected
  BeginReading();
}

void NodeStream::OnCancel() {
  {
    MutexLock lock(mutex_);
    lost_ = true;
  }
  Abandon();
}

void NodeStream::OnDone() {
  const std::shared_ptr<NodeStream> self = shared_from_this();
  MarkEnded();
  close_alarm_.Cancel();
  absl::Status why;
  {
    MutexLock lock(mutex_);
    if (closed_here_) {
      why = reason_;
    } else if (lost_) {
      why = absl::UnavailableError("the connection was lost");
    }
  }
  context_.events->OnNodeDisconnected(context_.id, std::move(why));
  context_.owner->Remove(context_.id);
}

void NodeStream::Deliver(v1::NodeMessage message) {
  context_.events->OnNodeMessage(context_.id, std::move(message));
}

void NodeStream::FinishLocked() { Finish(ToGrpcTrailer(reason_)); }

void NodeStream::CutLocked() { call_->TryCancel(); }

void NodeStream::StartCloseTimerLocked() {
  CutAfter(close_alarm_, context_.close_grace, weak_from_this());
}

// ---- opened here
// ---------------------------------------------------------------------------------

CoordinatorStream::CoordinatorStream(const PeerStreamContext& context, std::string host_port)
    : OrderedStream(context.max_outgoing_bytes, /*connected=*/false),
      context_(context),
      host_port_(std::move(host_port)),
      call_(std::make_unique<grpc::ClientContext>()) {}

void CoordinatorStream::Begin(std::shared_ptr<grpc::Channel> channel,
                              const std::string& call_token) {
  {
    MutexLock lock(mutex_);
    if (stage_ != Stage::kUnconnected) return;
    stage_ = Stage::kConnected;
  }
  channel_ = std::move(channel);
  call_->AddMetadata(kCallTokenKey, call_token);
  stub_ = v1::Peer::NewStub(channel_);
  stub_->async()->Job(call_.get(), this);
  AddHold();  // for writes, which start outside of reactions; released by FinishLocked
  BeginReading();
  answer_alarm_.Set(FromNow(kAnswerPatience), [stream = weak_from_this()](bool fired) {
    if (!fired) return;
    if (const auto alive = stream.lock()) alive->OnSilence();
  });
  StartCall();
  MutexLock lock(mutex_);
  ConnectedLocked();
}

void CoordinatorStream::EndUnconnected(const absl::Status& why) {
  const std::shared_ptr<CoordinatorStream> self = shared_from_this();
  absl::Status reason = why;
  {
    MutexLock lock(mutex_);
    if (stage_ != Stage::kUnconnected) return;
    stage_ = Stage::kEnded;
    if (closed_here_) reason = reason_;
  }
  MarkEnded();
  close_alarm_.Cancel();
  if (absl::IsAlreadyExists(reason)) {
    context_.events->OnCoordinatorIsHere(context_.id);
  } else {
    context_.events->OnCoordinatorDisconnected(context_.id, std::move(reason));
  }
  context_.owner->Remove(context_.id);
}

void CoordinatorStream::OnSilence() {
  {
    MutexLock lock(mutex_);
    if (answered_) return;
    was_silent_ = true;
  }
  Cut();
}

void CoordinatorStream::OnReadInitialMetadataDone(bool ok) {
  if (!ok) return;
  {
    MutexLock lock(mutex_);
    answered_ = true;
  }
  answer_alarm_.Cancel();
}

void CoordinatorStream::OnDone(const grpc::Status& status) {
  const std::shared_ptr<CoordinatorStream> self = shared_from_this();
  MarkEnded();
  answer_alarm_.Cancel();
  close_alarm_.Cancel();
  // The channel goes before Remove() tells that nothing of the stream is left: its threads end with
  // it.
  call_.reset();
  stub_.reset();
  channel_.reset();
  context_.events->OnCoordinatorDisconnected(context_.id, Explain(status));
  context_.owner->Remove(context_.id);
}

void CoordinatorStream::Deliver(v1::CoordinatorMessage message) {
  context_.events->OnCoordinatorMessage(context_.id, std::move(message));
}

void CoordinatorStream::FinishLocked() {
  if (closed_here_) StartWritesDone();
  RemoveHold();
}

void CoordinatorStream::CutLocked() { call_->TryCancel(); }

void CoordinatorStream::StartCloseTimerLocked() {
  CutAfter(close_alarm_, context_.close_grace, weak_from_this());
}

absl::Status CoordinatorStream::Explain(const grpc::Status& status) {
  MutexLock lock(mutex_);
  if (closed_here_) return reason_;
  if (was_silent_) {
    return absl::UnavailableError(
        absl::StrCat("the ringd at ", host_port_, " let this node in and then said nothing"));
  }
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    return absl::UnavailableError(absl::StrCat("the connection to the ringd at ", host_port_,
                                               " was lost: ", status.error_message()));
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace ringd
