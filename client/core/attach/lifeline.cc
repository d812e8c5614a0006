#include "client/core/attach/lifeline.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "client/core/waiting/quiet_thread.h"
#include "proto/attach/handshake.h"
#include "proto/base/errno_status.h"

namespace ringd::client {
namespace {

constexpr std::size_t kReadBytes = 4096;
// More than this in one message are closed by the kernel.
constexpr std::size_t kMostFds = 8;
constexpr char kLostDescriptors[] =
    "what ringd has sent was lost: this process has too many open files (RLIMIT_NOFILE)";

void TakeFds(msghdr& message, std::deque<UniqueFd>& fds) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(fd));
      fds.emplace_back(fd);
    }
  }
}

}  // namespace

Lifeline::Lifeline(UniqueFd connection) : connection_(std::move(connection)) {}

Lifeline::~Lifeline() { Stop(); }

absl::Status Lifeline::Start(Callbacks callbacks) {
  callbacks_ = std::move(callbacks);
  stop_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop_.valid()) return ErrnoStatus(errno, "eventfd");
  absl::StatusOr<std::thread> thread = StartQuietThread("ringd-notices", [this] { Run(); });
  if (!thread.ok()) return thread.status();
  thread_ = *std::move(thread);
  return absl::OkStatus();
}

void Lifeline::Stop() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof(one));
  thread_.join();
}

void Lifeline::Hang() noexcept { ::shutdown(connection_.get(), SHUT_RDWR); }

void Lifeline::Run() {
  Clock::time_point next_look = Clock::now() + kLookInterval;
  for (;;) {
    const Clock::time_point now = Clock::now();
    if (now >= next_look) {
      next_look = now + kLookInterval;
      callbacks_.on_look(now);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_look - now);
    pollfd entries[2] = {{connection_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (::poll(entries, 2, static_cast<int>(left.count())) < 0 && errno != EINTR) break;
    if (entries[1].revents != 0) return;
    if (entries[0].revents != 0 && !Receive()) break;
  }
  callbacks_.on_hang_up();
}

bool Lifeline::Receive() {
  const std::size_t before = buffer_.size();
  buffer_.resize(before + kReadBytes);
  iovec part{buffer_.data() + before, kReadBytes};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostFds * sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t received = ::recvmsg(connection_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (received > 0) TakeFds(message, fds_);
  if (received > 0 && (message.msg_flags & MSG_CTRUNC) != 0) {
    callbacks_.on_failure(kLostDescriptors);
    return false;
  }
  buffer_.resize(before + (received > 0 ? static_cast<std::size_t>(received) : 0));
  if (received == 0) return false;
  if (received < 0) return errno == EAGAIN || errno == EINTR;
  return HandleBuffered();
}

bool Lifeline::HandleBuffered() {
  std::size_t handled = 0;
  while (buffer_.size() - handled >= sizeof(NoticeHeader)) {
    NoticeHeader header{};
    std::memcpy(&header, buffer_.data() + handled, sizeof(header));
    if (header.text_length > kMaxNoticeBytes) return false;
    const std::size_t whole = sizeof(header) + header.text_length;
    if (buffer_.size() - handled < whole) break;
    const std::string text(buffer_.data() + handled + sizeof(header), header.text_length);
    handled += whole;
    if (!HandleNotice(static_cast<NoticeKind>(header.kind), text)) return false;
  }
  buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(handled));
  return true;
}

bool Lifeline::HandleNotice(NoticeKind kind, const std::string& text) {
  const auto read = [&text](auto& notice) {
    if (text.size() != sizeof(notice)) return false;
    std::memcpy(&notice, text.data(), sizeof(notice));
    return true;
  };
  switch (kind) {
    case NoticeKind::kWarning:
      callbacks_.on_warning(text);
      return true;
    case NoticeKind::kFailure:
      callbacks_.on_failure(text);
      return true;
    case NoticeKind::kSessionEnded:
      callbacks_.on_session_ended(text);
      return true;
    case NoticeKind::kJobSegment: {
      JobSegmentNotice notice{};
      if (!read(notice)) return false;
      callbacks_.on_job_segment(notice, NextFd());
      return true;
    }
    case NoticeKind::kMemberArena: {
      MemberArenaNotice notice{};
      if (!read(notice)) return false;
      callbacks_.on_member_arena(notice, NextFd());
      return true;
    }
    case NoticeKind::kRankExchange: {
      RankExchangeNotice notice{};
      if (!read(notice)) return false;
      callbacks_.on_rank_exchange(notice, NextFd());
      return true;
    }
    case NoticeKind::kRankExchangeConnection: {
      RankExchangeConnectionNotice notice{};
      if (!read(notice)) return false;
      callbacks_.on_rank_exchange_connection(notice, NextFd());
      return true;
    }
    case NoticeKind::kDeviceSlab: {
      DeviceSlabNotice notice{};
      if (!read(notice)) return false;
      callbacks_.on_device_slab(notice, NextFd());
      return true;
    }
    case NoticeKind::kDeviceLaunch:
      callbacks_.on_device_launch(NextFd());
      return true;
  }
  return true;  // of a later release
}

UniqueFd Lifeline::NextFd() {
  if (fds_.empty()) return UniqueFd();
  UniqueFd fd = std::move(fds_.front());
  fds_.pop_front();
  return fd;
}

}  // namespace ringd::client
