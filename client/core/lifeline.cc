#include "client/core/lifeline.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/attach/handshake.h"
#include "proto/base/errno_status.h"

namespace ringd::client {
namespace {

constexpr std::size_t kReadBytes = 4096;

// All signals blocked for as long as it lives; a thread started meanwhile keeps them blocked.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

Lifeline::Lifeline(UniqueFd connection) : connection_(std::move(connection)) {}

Lifeline::~Lifeline() { Stop(); }

absl::Status Lifeline::Start(Callbacks callbacks) {
  callbacks_ = std::move(callbacks);
  stop_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop_.valid()) return ErrnoStatus(errno, "eventfd");
  const SignalsBlocked blocked;
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(absl::StrCat("starting a thread: ", error.what()));
  }
  ::pthread_setname_np(thread_.native_handle(), "ringd-notices");
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
  for (;;) {
    pollfd entries[2] = {{connection_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (::poll(entries, 2, -1) < 0 && errno != EINTR) break;
    if (entries[1].revents != 0) return;
    if (entries[0].revents != 0 && !Receive()) break;
  }
  callbacks_.on_hang_up();
}

bool Lifeline::Receive() {
  const std::size_t before = buffer_.size();
  buffer_.resize(before + kReadBytes);
  const ssize_t received =
      ::recv(connection_.get(), buffer_.data() + before, kReadBytes, MSG_DONTWAIT);
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
    switch (static_cast<NoticeKind>(header.kind)) {
      case NoticeKind::kWarning:
        callbacks_.on_warning(text);
        break;
      case NoticeKind::kFailure:
        callbacks_.on_failure(text);
        break;
      case NoticeKind::kSessionEnded:
        callbacks_.on_session_ended(text);
        break;
    }
  }
  buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(handled));
  return true;
}

}  // namespace ringd::client
