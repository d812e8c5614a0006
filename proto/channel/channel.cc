#include "proto/channel/channel.h"

#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/errno_status.h"

namespace ringd {
namespace {

constexpr std::size_t kReadBytes = std::size_t{64} << 10;
// Memory that is kept for what comes next.
constexpr std::size_t kKeptBytes = 16 * kReadBytes;
// That have come and belong to no frame yet: of one frame, and of the one behind it.
constexpr std::size_t kMostWaitingFds = 2 * Channel::kMostFds;
// Of one message, as the kernel has it (SCM_MAX_FD). For those without room the kernel would close
// them on the thread that reads.
constexpr std::size_t kMostSentFds = 253;

}  // namespace

Channel::Channel(UniqueFd socket, ChannelLimits limits, std::function<void()> on_waiting,
                 Discard discard)
    : socket_(std::move(socket)),
      limits_(limits),
      on_waiting_(std::move(on_waiting)),
      discard_(std::move(discard)) {}

void Channel::Drop(std::vector<UniqueFd> fds) const {
  if (!fds.empty() && discard_ != nullptr) discard_(std::move(fds));
}

bool Channel::Send(std::string payload, std::vector<UniqueFd> fds,
                   std::shared_ptr<const void> room) {
  if (payload.size() > limits_.frame_bytes || fds.size() > kMostFds) {
    Drop(std::move(fds));
    return false;
  }
  Header header;
  header.bytes = static_cast<std::uint32_t>(payload.size());
  header.fds = static_cast<std::uint32_t>(fds.size());
  Outgoing frame;
  frame.bytes.reserve(sizeof(header) + payload.size());
  frame.bytes.append(reinterpret_cast<const char*>(&header), sizeof(header));
  frame.bytes += payload;
  frame.weight = frame.bytes.size() + kFrameBytes + fds.size() * kFdBytes;
  frame.fds = std::move(fds);
  frame.room = std::move(room);
  bool waits = false;
  {
    const MutexLock lock(mutex_);
    if (!ended_ && queued_bytes_ + frame.weight > limits_.queued_bytes) EndLocked();
    if (ended_) {
      Drop(std::move(frame.fds));
      return false;
    }
    const bool waited = !outgoing_.empty();
    queued_bytes_ += frame.weight;
    outgoing_.push_back(std::move(frame));
    if (!waited) FlushLocked();
    if (ended_) return false;
    waits = !waited && !outgoing_.empty();
  }
  if (waits && on_waiting_ != nullptr) on_waiting_();
  return true;
}

bool Channel::WaitsToSend() {
  const MutexLock lock(mutex_);
  return !outgoing_.empty();
}

Channel::Flushed Channel::Flush() {
  const MutexLock lock(mutex_);
  return FlushLocked();
}

Channel::Flushed Channel::FlushLocked() {
  std::size_t sent = 0;
  while (!outgoing_.empty()) {
    if (sent >= kFlushBytes) return Flushed::kSocketFull;
    const std::size_t before = outgoing_.front().sent;
    if (const Flushed done = SendSome(outgoing_.front()); done != Flushed::kAll) return done;
    if (outgoing_.empty()) break;
    sent += outgoing_.front().sent - before;
    if (outgoing_.front().sent < outgoing_.front().bytes.size()) continue;
    queued_bytes_ -= outgoing_.front().weight;
    outgoing_.pop_front();
  }
  return Flushed::kAll;
}

Channel::Flushed Channel::SendSome(Outgoing& frame) {
  iovec part{frame.bytes.data() + frame.sent, frame.bytes.size() - frame.sent};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostFds * sizeof(int))> control{};
  if (!frame.fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(frame.fds.size() * sizeof(int));
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(frame.fds.size() * sizeof(int));
    for (std::size_t i = 0; i < frame.fds.size(); ++i) {
      const int fd = frame.fds[i].get();
      std::memcpy(CMSG_DATA(rights) + i * sizeof(int), &fd, sizeof(fd));
    }
  }
  const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) {
    if (errno == ETOOMANYREFS) return Flushed::kTooManyFds;
    if (errno == EAGAIN) return Flushed::kSocketFull;
    if (errno != EINTR) EndLocked();
    return Flushed::kAll;
  }
  // The other side may have closed its own already, and have made ours wait.
  Drop(std::exchange(frame.fds, {}));
  frame.sent += static_cast<std::size_t>(sent);
  return Flushed::kAll;
}

void Channel::EndLocked() noexcept {
  ended_ = true;
  for (Outgoing& frame : outgoing_) Drop(std::move(frame.fds));
  outgoing_.clear();
  queued_bytes_ = 0;
  // Wakes whoever reads.
  ::shutdown(socket_.get(), SHUT_RDWR);
}

void Channel::Close() noexcept {
  const MutexLock lock(mutex_);
  if (!ended_) EndLocked();
}

absl::StatusOr<std::size_t> Channel::Receive() {
  DropTaken();
  const std::size_t before = incoming_.size();
  incoming_.resize(before + kReadBytes);
  iovec part{incoming_.data() + before, kReadBytes};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostSentFds * sizeof(int))> control{};
  if (limits_.takes_fds) {  // else the kernel closes what is sent along
    message.msg_control = control.data();
    message.msg_controllen = control.size();
  }
  const ssize_t received = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  const int error = errno;
  incoming_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(received, 0)));
  if (received < 0) {
    if (error == EAGAIN || error == EINTR) return std::size_t{0};
    return absl::UnavailableError(absl::StrCat("reading failed: ", std::strerror(error)));
  }
  for (cmsghdr* rights = CMSG_FIRSTHDR(&message); rights != nullptr;
       rights = CMSG_NXTHDR(&message, rights)) {
    if (rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(rights) + i * sizeof(int), sizeof(fd));
      incoming_fds_.emplace_back(fd);
    }
  }
  const bool lost = (message.msg_flags & MSG_CTRUNC) != 0;
  if (!limits_.takes_fds && lost) {
    return absl::InvalidArgumentError("descriptors, where there are none");
  }
  if (lost) {
    return absl::ResourceExhaustedError("descriptors were lost: too many open files");
  }
  if (incoming_fds_.size() > kMostWaitingFds) {
    return absl::InvalidArgumentError("more descriptors than frames say");
  }
  if (received == 0) return absl::UnavailableError("the other side has closed the channel");
  return static_cast<std::size_t>(received);
}

std::size_t Channel::next_bytes() const noexcept {
  Header header;
  if (incoming_.size() - taken_ < sizeof(header)) return 0;
  std::memcpy(&header, incoming_.data() + taken_, sizeof(header));
  return header.bytes <= limits_.incoming_frame_bytes ? header.bytes : 0;
}

absl::StatusOr<bool> Channel::Take(ChannelFrame& frame) {
  has_frames_.store(false, std::memory_order_relaxed);
  const std::size_t there = incoming_.size() - taken_;
  Header header;
  if (there < sizeof(header)) return false;
  std::memcpy(&header, incoming_.data() + taken_, sizeof(header));
  if (header.bytes > limits_.incoming_frame_bytes || header.fds > kMostFds) {
    return absl::InvalidArgumentError(
        absl::StrCat("a frame of ", header.bytes, " bytes and ", header.fds, " descriptors"));
  }
  if (there < sizeof(header) + header.bytes) return false;
  if (incoming_fds_.size() < header.fds) {
    return absl::InvalidArgumentError("fewer descriptors than a frame says");
  }
  frame.bytes.assign(incoming_, taken_ + sizeof(header), header.bytes);
  for (std::uint32_t i = 0; i < header.fds; ++i) {
    frame.fds.push_back(std::move(incoming_fds_.front()));
    incoming_fds_.pop_front();
  }
  taken_ += sizeof(header) + header.bytes;
  has_frames_.store(true, std::memory_order_relaxed);
  return true;
}

bool Channel::HasUntaken() const noexcept {
  if (has_frames_.load(std::memory_order_relaxed)) return true;
  int bytes = 0;
  return ::ioctl(socket_.get(), FIONREAD, &bytes) == 0 && bytes > 0;
}

// What was handed over goes, at most once for each byte that is kept; and so does the memory of a
// long frame, behind which somebody may send the begin of another one.
void Channel::DropTaken() {
  if (taken_ >= incoming_.size() || taken_ > incoming_.size() / 2) {
    incoming_.erase(0, taken_);
    taken_ = 0;
  }
  if (incoming_.capacity() > kKeptBytes && incoming_.size() < incoming_.capacity() / 4) {
    incoming_.shrink_to_fit();
  }
}

absl::Status Channel::Read(std::size_t budget, const std::function<void(ChannelFrame)>& take) {
  for (std::size_t read = 0; read < budget;) {
    const absl::StatusOr<std::size_t> received = Receive();
    if (!received.ok()) return received.status();
    for (;;) {
      ChannelFrame frame;
      const absl::StatusOr<bool> taken = Take(frame);
      if (!taken.ok()) return taken.status();
      if (!*taken) break;
      take(std::move(frame));
    }
    if (*received == 0) break;
    read += *received;
  }
  return absl::OkStatus();
}

}  // namespace ringd
