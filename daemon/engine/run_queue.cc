#include "daemon/engine/run_queue.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <string_view>
#include <thread>

namespace ringd {
namespace {

// "0.52 0.58 0.59 3/467 12345": three load averages, those that want to run / all threads, the last process.
// -1: it looks otherwise.
int RunnableIn(std::string_view text) {
  for (int field = 0; field < 3; ++field) {
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos) return -1;
    text.remove_prefix(space + 1);
  }
  int runnable = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), runnable);
  const bool whole = error == std::errc() && end != text.data() + text.size() && *end == '/';
  return whole ? runnable : -1;
}

}  // namespace

RunQueue::RunQueue()
    : RunQueue("/proc/loadavg", static_cast<int>(std::thread::hardware_concurrency())) {}

RunQueue::RunQueue(const char* path, int processors)
    : file_(::open(path, O_RDONLY | O_CLOEXEC)), processors_(processors) {}

bool RunQueue::IsCrowded(Clock::time_point now) noexcept {
  if (now < next_look_) return is_crowded_;
  next_look_ = now + kLookInterval;
  std::array<char, 128> text;
  const ssize_t length = ::pread(file_.get(), text.data(), text.size(), 0);
  const int runnable =
      length <= 0 ? -1 : RunnableIn({text.data(), static_cast<std::size_t>(length)});
  is_crowded_ = runnable < 0 || runnable >= processors_;
  return is_crowded_;
}

}  // namespace ringd
