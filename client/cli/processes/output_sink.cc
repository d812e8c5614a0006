#include "client/cli/processes/output_sink.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ringd::cli {
namespace {

// What a pipe that poll calls writable takes without blocking (PIPE_BUF).
constexpr std::size_t kPieceBytes = 4096;
constexpr int kGoesOnIntervalMs = 50;

// A terminal's own description of this process; none if it is no terminal, or another user's.
int OpenTerminal(int fd) {
  if (::isatty(fd) == 0) return -1;
  const std::string path = absl::StrCat("/proc/self/fd/", fd);
  return ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

}  // namespace

OutputSink::OutputSink(int fd, int interrupt, std::function<bool()> goes_on)
    : terminal_(OpenTerminal(fd)),
      fd_(terminal_.valid() ? terminal_.get() : fd),
      interrupt_(interrupt),
      goes_on_(std::move(goes_on)) {}

void OutputSink::Write(absl::string_view bytes) {
  while (!bytes.empty() && !broken_) {
    if (!WaitUntilWritable()) {
      broken_ = true;
      return;
    }
    const ssize_t written = ::write(fd_, bytes.data(), std::min(bytes.size(), kPieceBytes));
    if (written >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {
      broken_ = !WaitAWhile();
    } else if (errno != EINTR) {
      error_ = errno;
      broken_ = true;
    }
  }
}

bool OutputSink::WaitUntilWritable() {
  pollfd polled[2] = {{fd_, POLLOUT, 0}, {interrupt_, POLLIN, 0}};
  // Not at once with both: an interrupt must not cost what could still be written.
  if (::poll(polled, 1, 0) == 1) return true;
  for (;;) {
    const int ready = ::poll(polled, interrupt_ >= 0 ? 2 : 1, kGoesOnIntervalMs);
    if (ready > 0) return polled[0].revents != 0;
    if (ready < 0 && errno != EINTR) {
      error_ = errno;
      return false;
    }
    if (!goes_on_()) return false;
  }
}

bool OutputSink::WaitAWhile() {
  pollfd interrupt = {interrupt_, POLLIN, 0};
  return ::poll(&interrupt, 1, kGoesOnIntervalMs) <= 0 && goes_on_();
}

}  // namespace ringd::cli
