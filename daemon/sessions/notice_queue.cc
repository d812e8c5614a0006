#include "daemon/sessions/notice_queue.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/errno_status.h"

namespace ringd {
namespace {

bool MayPass(int error) noexcept {
  return error == EAGAIN || error == ETOOMANYREFS || error == ENOBUFS || error == ENOMEM;
}

std::vector<std::byte> Bytes(NoticeKind kind, std::span<const std::byte> text) {
  const auto length =
      static_cast<std::uint32_t>(std::min<std::size_t>(text.size(), kMaxNoticeBytes));
  const NoticeHeader header{static_cast<std::uint32_t>(kind), length};
  std::vector<std::byte> bytes(sizeof(header) + length);
  std::memcpy(bytes.data(), &header, sizeof(header));
  if (length > 0) std::memcpy(bytes.data() + sizeof(header), text.data(), length);
  return bytes;
}

}  // namespace

void NoticeQueue::Keep(Frame& frame) {
  if (!frame.fd.valid()) return;
  struct stat found {};
  const bool is_memory = ::fstat(frame.fd.get(), &found) == 0 && S_ISREG(found.st_mode);
  if (is_memory) {
    frame.fd.Reset();
  } else {
    sent_.push_back(std::move(frame.fd));
  }
}

void NoticeQueue::Drop() {
  for (Frame& frame : frames_) Keep(frame);
  frames_.clear();
  bytes_ = 0;
}

bool NoticeQueue::TrySend(int socket, Frame& frame, int fd) {
  while (frame.sent < frame.bytes.size()) {
    iovec part{frame.bytes.data() + frame.sent, frame.bytes.size() - frame.sent};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (fd >= 0 && frame.sent == 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
      cmsghdr* const rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
    }
    const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      frame.sent += static_cast<std::size_t>(sent);
      continue;
    }
    last_errno_ = errno;
    if (last_errno_ == EINTR) continue;
    if (MayPass(last_errno_)) return false;
    // Its hang-up, which the engine sees, says the rest.
    gone_ = true;
    return true;
  }
  return true;
}

void NoticeQueue::Enqueue(Frame frame, int fd) {
  if (frames_.size() >= kMostFrames || bytes_ + frame.bytes.size() > kMostBytes) {
    if (frame.kind == NoticeKind::kWarning && frame.sent == 0) return;
    error_ = absl::ResourceExhaustedError(
        absl::StrCat("does not read what ringd tells it: ", frames_.size(), " notices wait"));
    return;
  }
  if (fd >= 0 && frame.sent == 0) {
    frame.fd.Reset(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!frame.fd.valid()) {
      error_ = ErrnoStatus(errno, "could not be given the memory of its job: dup");
      return;
    }
  }
  bytes_ += frame.bytes.size();
  frames_.push_back(std::move(frame));
}

void NoticeQueue::Send(int socket, NoticeKind kind, std::span<const std::byte> text, int fd,
                       Clock::time_point now) {
  Flush(socket, now);
  if (gone_ || !error_.ok()) return;
  Frame frame;
  frame.kind = kind;
  frame.bytes = Bytes(kind, text);
  frame.since = now;
  if (!frames_.empty() || !TrySend(socket, frame, fd)) Enqueue(std::move(frame), fd);
}

void NoticeQueue::Flush(int socket, Clock::time_point now) {
  while (!gone_ && error_.ok() && !frames_.empty()) {
    Frame& first = frames_.front();
    if (!TrySend(socket, first, first.fd.get())) break;
    bytes_ -= first.bytes.size();
    Keep(first);
    frames_.pop_front();
  }
  if (gone_) Drop();
  if (frames_.empty() || !error_.ok()) return;
  const bool late = std::any_of(frames_.begin(), frames_.end(), [now](const Frame& frame) {
    return frame.fd.valid() && now - frame.since > kPatience;
  });
  if (!late) return;
  error_ =
      last_errno_ == EAGAIN
          ? absl::DeadlineExceededError(
                "could not be given the memory of its job: it does not read what ringd tells it")
          : ErrnoStatus(last_errno_,
                        "could not be given the memory of its job: passing a descriptor");
}

void NoticeQueue::SendLast(int socket, NoticeKind kind, absl::string_view text) {
  if (gone_) return;
  if (!frames_.empty()) {
    // The rest of what has begun, or the reader would be out of step.
    Frame& first = frames_.front();
    if (first.sent > 0 && !TrySend(socket, first, -1)) return;
  }
  Drop();
  Frame frame;
  frame.bytes = Bytes(kind, std::as_bytes(std::span(text.data(), text.size())));
  static_cast<void>(TrySend(socket, frame, -1));
}

void HangUp(int lifeline, absl::string_view why) {
  NoticeQueue().SendLast(lifeline, NoticeKind::kSessionEnded, why);
  ::shutdown(lifeline, SHUT_RDWR);
}

}  // namespace ringd
