#include "client/cli/processes/output_sink.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

namespace ringd::cli {
namespace {

// What a pipe that poll calls writable takes without blocking (PIPE_BUF).
constexpr std::size_t kPieceBytes = 4096;
constexpr int kGoesOnIntervalMs = 50;

}  // namespace

void OutputSink::Write(absl::string_view bytes) {
  while (!bytes.empty() && !broken_) {
    if (!WaitUntilWritable()) {
      broken_ = true;
      return;
    }
    const ssize_t written = ::write(fd_, bytes.data(), std::min(bytes.size(), kPieceBytes));
    if (written >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR && errno != EAGAIN) {
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

}  // namespace ringd::cli
