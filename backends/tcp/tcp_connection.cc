#include "backends/tcp/tcp_connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/socket_options.h"
#include "backends/tcp/tcp_socket.h"
#include "proto/base/cache_line.h"

namespace ringd {
namespace {

// What lacks less of a frame comes with the next packets.
constexpr std::size_t kWorthAwaiting = 4096;

std::byte* AllocateLines(std::size_t bytes) {
  return static_cast<std::byte*>(::operator new(bytes, std::align_val_t(kCacheLineBytes)));
}

}  // namespace

void TcpConnection::Free::operator()(std::byte* memory) const noexcept {
  ::operator delete(memory, std::align_val_t(kCacheLineBytes));
}

TcpConnection::TcpConnection(UniqueFd socket, const FrameScope& scope, std::uint32_t stream,
                             TcpPoller& poller, Owner& owner)
    : socket_(std::move(socket)),
      scope_(scope),
      stream_(stream),
      peer_address_(PeerAddressOf(socket_.get())),
      poller_(poller),
      owner_(&owner),
      buffer_(AllocateLines(kBufferBytes)) {}

TcpConnection::~TcpConnection() { poller_.Forget(socket_.get(), *this); }

absl::Status TcpConnection::Start() { return poller_.WatchConnection(socket_.get(), *this); }

void TcpConnection::OnEvents(std::uint32_t events) noexcept {
  constexpr std::uint32_t kEnds = EPOLLRDHUP | EPOLLHUP | EPOLLERR;
  if ((events & (EPOLLIN | kEnds)) != 0) readable_ = true;
  if ((events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0) writable_ = true;
  if ((events & kEnds) != 0) hung_up_ = true;
  poller_.AddReady(*this);
}

bool TcpConnection::Begin(TcpSend& send) noexcept {
  head_ = {send.header, static_cast<std::uint32_t>(send.payload.size()), FrameKind::kMessage};
  head_left_ = std::as_bytes(std::span(&head_, 1));
  payload_left_ = send.payload;
  Write();
  if (!is_writing()) return true;
  sending_ = &send;
  return false;
}

TcpSend* TcpConnection::Continue() noexcept {
  if (!writable_) return nullptr;
  if (is_writing()) Write();
  if (is_writing()) return nullptr;
  if (std::exchange(says_goodbye_, false) && !ended()) {
    head_ = GoodbyeOf(scope_);
    head_left_ = std::as_bytes(std::span(&head_, 1));
    Write();
  }
  return std::exchange(sending_, nullptr);
}

TcpSend* TcpConnection::TakeBack(const SendObserver* observer) noexcept {
  if (sending_ == nullptr || (observer != nullptr && sending_->observer != observer))
    return nullptr;
  if (head_left_.size() == sizeof(FrameHead)) {
    // Not a byte of it has left.
    head_left_ = payload_left_ = {};
  } else {
    rest_.assign(payload_left_.begin(), payload_left_.end());
    payload_left_ = rest_;
  }
  return std::exchange(sending_, nullptr);
}

TcpSend* TcpConnection::Abandon() noexcept {
  head_left_ = payload_left_ = {};
  return std::exchange(sending_, nullptr);
}

void TcpConnection::SayGoodbye() noexcept {
  says_goodbye_ = true;
  Continue();
}

void TcpConnection::Write() noexcept {
  while (is_writing()) {
    std::array<iovec, 2> parts{};
    std::size_t count = 0;
    for (const std::span<const std::byte> left : {head_left_, payload_left_}) {
      if (left.empty()) continue;
      parts[count++] = {const_cast<std::byte*>(left.data()), left.size()};
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const std::size_t wanted = head_left_.size() + payload_left_.size();
    const ssize_t got = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (got < 0) {
      if (errno == EINTR) continue;
      writable_ = false;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      EndByErrno(errno);
      return;
    }
    const auto written = static_cast<std::size_t>(got);
    const std::size_t of_head = std::min(written, head_left_.size());
    head_left_ = head_left_.subspan(of_head);
    payload_left_ = payload_left_.subspan(written - of_head);
    // Less than all was taken: there is no room, and the kernel will tell when there is.
    if (written < wanted) {
      writable_ = false;
      return;
    }
  }
}

std::size_t TcpConnection::ReadAhead() const noexcept {
  const std::size_t have = end_of_data_ - begin_;
  std::size_t payload_bytes = read_ahead_;
  if (have >= sizeof(FrameHead)) {
    FrameHead head;
    std::memcpy(&head, buffer_.get() + begin_, sizeof(head));
    payload_bytes = head.payload_bytes;
  }
  return sizeof(FrameHead) + payload_bytes + sizeof(FrameHead) - have;
}

std::size_t TcpConnection::MissingBytes() const noexcept {
  const std::size_t have = end_of_data_ - begin_;
  if (have < sizeof(FrameHead)) return 0;
  FrameHead head;
  std::memcpy(&head, buffer_.get() + begin_, sizeof(head));
  return sizeof(FrameHead) + head.payload_bytes - have;
}

void TcpConnection::AwaitWholeFrame() noexcept {
  if (!ended()) SetLeastBytes(std::max<std::size_t>(MissingBytes(), 1));
}

void TcpConnection::SetLeastBytes(std::size_t bytes) noexcept {
  if (bytes == least_bytes_) return;
  if (WakeAt(socket_.get(), static_cast<std::uint32_t>(bytes))) least_bytes_ = bytes;
}

void TcpConnection::Read(std::size_t limit) noexcept {
  std::size_t taken = 0;
  while (readable_ && !ended()) {
    if (taken >= limit) {
      poller_.AddReady(*this);
      return;
    }
    const std::size_t wanted = ReadAhead();
    const ssize_t got = ::recv(socket_.get(), buffer_.get() + end_of_data_, wanted, MSG_DONTWAIT);
    if (got < 0) {
      if (errno == EINTR) continue;
      readable_ = false;
      if (errno == EAGAIN || errno == EWOULDBLOCK) break;
      EndByErrno(errno);
      return;
    }
    if (got == 0) {
      end_ = absl::UnavailableError(absl::StrCat(peer_address_, " has closed it"));
      return;
    }
    taken += static_cast<std::size_t>(got);
    end_of_data_ += static_cast<std::size_t>(got);
    // Less than asked for: nothing more was there, and what comes from now on the kernel will tell.
    if (static_cast<std::size_t>(got) < wanted && !hung_up_) readable_ = false;
    if (!DeliverFrames()) return;
  }
  SetLeastBytes(1);
  if (MissingBytes() >= kWorthAwaiting) poller_.NotePartial(*this);
}

bool TcpConnection::DeliverFrames() noexcept {
  while (end_of_data_ - begin_ >= sizeof(FrameHead)) {
    FrameHead head;
    std::memcpy(&head, buffer_.get() + begin_, sizeof(head));
    const char* problem = ProblemOf(head, scope_);
    if (problem == nullptr && peer_left_) problem = "sends on after its goodbye";
    if (problem != nullptr) {
      end_ = absl::InternalError(absl::StrCat(problem, ", from ", peer_address_));
      return false;
    }
    if (head.payload_bytes > 0 && begin_ != kHeadAt) MoveToFront();
    const std::size_t frame_bytes = sizeof(head) + head.payload_bytes;
    if (end_of_data_ - begin_ < frame_bytes) return true;
    begin_ += frame_bytes;
    if (head.kind == FrameKind::kGoodbye) {
      peer_left_ = true;
      continue;
    }
    read_ahead_ = std::max<std::size_t>(head.payload_bytes, kLeastReadAhead);
    owner_->OnMessage(head.message,
                      {buffer_.get() + begin_ - head.payload_bytes, head.payload_bytes});
  }
  if (begin_ != kHeadAt) MoveToFront();
  return true;
}

void TcpConnection::MoveToFront() noexcept {
  std::memmove(buffer_.get() + kHeadAt, buffer_.get() + begin_, end_of_data_ - begin_);
  end_of_data_ -= begin_ - kHeadAt;
  begin_ = kHeadAt;
}

void TcpConnection::EndByErrno(int error) noexcept {
  // What could not be written is not wanted any more.
  head_left_ = payload_left_ = {};
  end_ = absl::UnavailableError(absl::StrCat(peer_address_, ": ", std::strerror(error)));
}

}  // namespace ringd
