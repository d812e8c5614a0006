#include "daemon/peers/peer_stream.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ringd {
namespace {

// Frames that one call of sendmsg takes.
constexpr std::size_t kFramesAtOnce = 16;

// Of a closed window, before the other host counts as silent.
constexpr int kUnansweredProbes = 3;

}  // namespace

bool PeerStream::Send(std::string frame) {
  const MutexLock lock(mutex_);
  if (closed_) return true;
  const std::size_t bytes = frame.size();
  if (bytes > kPeerFrameHeaderBytes + kMaxPeerMessageBytes) {
    closed_ = true;
    reason_ = absl::ResourceExhaustedError(
        absl::StrCat("a message of ", bytes, " bytes is longer than ringds take from each other"));
    DropLocked();
    return false;
  }
  if (bytes > limits_.max_outgoing_bytes - queued_bytes_ || !budget_->Take(bytes)) {
    closed_ = true;
    reason_ = absl::ResourceExhaustedError(
        absl::StrCat("the other side did not take its messages: ", queue_.size(), " wait, ",
                     queued_bytes_, " bytes, and one of ", bytes, " bytes finds no room"));
    DropLocked();
    return false;
  }
  QueueLocked(std::move(frame));
  return true;
}

bool PeerStream::Close(const absl::Status& reason) {
  const MutexLock lock(mutex_);
  if (closed_) return false;
  closed_ = true;
  reason_ = reason;
  // Without a connection, too: the network's thread may be about to hand it in.
  std::string frame = EncodePeerEnd(reason);
  if (!budget_->Take(frame.size())) {
    // Behind a frame that has left in part this one would be taken for its rest.
    const bool is_amid_a_frame = front_sent_ > 0;
    DropLocked();
    // It will see the connection end, unsaid.
    if (is_amid_a_frame || !budget_->Take(frame.size())) return true;
  }
  said_ = true;
  QueueLocked(std::move(frame));
  return true;
}

bool PeerStream::closed() const {
  const MutexLock lock(mutex_);
  return closed_;
}

absl::Status PeerStream::reason() const {
  const MutexLock lock(mutex_);
  return reason_;
}

void PeerStream::Connect(UniqueFd socket, Clock::time_point now) {
  heard_ = now;
  const MutexLock lock(mutex_);
  socket_ = std::move(socket);
  WriteLocked();
}

void PeerStream::Disconnect() noexcept {
  const MutexLock lock(mutex_);
  closed_ = true;
  DropLocked();
  // The supervisor has a duplicate, for the case that this process ends.
  if (socket_.valid()) ::shutdown(socket_.get(), SHUT_RDWR);
  socket_.Reset();
}

void PeerStream::Flush() {
  const MutexLock lock(mutex_);
  WriteLocked();
}

void PeerStream::Pong() {
  {
    const MutexLock lock(mutex_);
    if (closed_ || !queue_.empty()) return;
  }
  static_cast<void>(Send(EncodePeerFrame(PeerFrameKind::kPong, {})));
}

int PeerStream::socket() const {
  const MutexLock lock(mutex_);
  return socket_.get();
}

int PeerStream::broken() const {
  const MutexLock lock(mutex_);
  return broken_;
}

PeerStream::Look PeerStream::LookAfter(Clock::time_point now) {
  bool is_closed = false;
  {
    const MutexLock lock(mutex_);
    if (!socket_.valid()) return {};
    is_closed = closed_;
  }
  if (is_closed) {
    if (!closed_since_.has_value()) closed_since_ = now;
    const Clock::time_point due = *closed_since_ + limits_.close_grace;
    if (now < due) return {{}, due};
    return {absl::UnavailableError("it does not hang up"), due};
  }
  if (pinged_.has_value() && heard_ > *pinged_) pinged_.reset();
  if (pinged_.has_value()) {
    const Clock::time_point due = *pinged_ + limits_.keepalive_timeout;
    if (now < due) return {{}, due};
    const Acknowledged acknowledged = LookAtAcknowledged();
    if (acknowledged.all || acknowledged.window_is_closed) {
      if (now - heard_ < limits_.process_patience) return Ping(now);
      const auto silent = std::chrono::duration_cast<std::chrono::seconds>(now - heard_);
      return {absl::DeadlineExceededError(absl::StrCat("it has not answered for ", silent.count(),
                                                       " s, though its host does")),
              due};
    }
    if (acknowledged.bytes <= acknowledged_) {
      return {absl::UnavailableError("its host does not answer"), due};
    }
    // What it takes from us is a sign of life as well: the ping may be far behind.
    acknowledged_ = acknowledged.bytes;
    pinged_ = now;
    return {{}, now + limits_.keepalive_timeout};
  }
  const Clock::time_point due = heard_ + limits_.keepalive_interval;
  if (now < due) return {{}, due};
  return Ping(now);
}

PeerStream::Look PeerStream::Ping(Clock::time_point now) {
  pinged_ = now;
  if (!Send(EncodePeerFrame(PeerFrameKind::kPing, {}))) {
    return {absl::UnavailableError("it takes nothing"), now};
  }
  acknowledged_ = LookAtAcknowledged().bytes;
  return {{}, now + limits_.keepalive_timeout};
}

void PeerStream::QueueLocked(std::string frame) {
  queued_bytes_ += frame.size();
  queue_.push_back(std::move(frame));
  if (queue_.size() == 1) WriteLocked();
}

void PeerStream::DropLocked() noexcept {
  budget_->Give(std::exchange(queued_bytes_, 0));
  queue_.clear();
  front_sent_ = 0;
}

void PeerStream::WriteLocked() {
  if (!socket_.valid() || broken_ != 0) return;
  while (!queue_.empty()) {
    std::array<iovec, kFramesAtOnce> parts;
    const std::size_t count = std::min(queue_.size(), parts.size());
    for (std::size_t i = 0; i < count; ++i) parts[i] = {queue_[i].data(), queue_[i].size()};
    parts[0] = {queue_[0].data() + front_sent_, queue_[0].size() - front_sent_};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return;
    if (sent < 0) {
      // The network's thread hears of the connection's end by itself.
      broken_ = errno;
      DropLocked();
      return;
    }
    front_sent_ += static_cast<std::size_t>(sent);
    written_bytes_ += static_cast<std::uint64_t>(sent);
    while (!queue_.empty() && front_sent_ >= queue_.front().size()) {
      const std::size_t bytes = queue_.front().size();
      front_sent_ -= bytes;
      queued_bytes_ -= bytes;
      budget_->Give(bytes);
      queue_.pop_front();
    }
  }
  if (said_) ::shutdown(socket_.get(), SHUT_WR);
}

PeerStream::Acknowledged PeerStream::LookAtAcknowledged() const {
  const MutexLock lock(mutex_);
  int outstanding = 0;
  if (::ioctl(socket_.get(), SIOCOUTQ, &outstanding) != 0) outstanding = 0;
  Acknowledged acknowledged;
  acknowledged.bytes =
      written_bytes_ -
      std::min<std::uint64_t>(static_cast<std::uint64_t>(outstanding), written_bytes_);
  acknowledged.all = outstanding == 0 && queue_.empty();
  if (outstanding == 0) return acknowledged;
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (::getsockopt(socket_.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return acknowledged;
  // The kernel probes a closed window, ever more rarely.
  acknowledged.window_is_closed = info.tcpi_unacked == 0 && info.tcpi_probes < kUnansweredProbes;
  return acknowledged;
}

}  // namespace ringd
