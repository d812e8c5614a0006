#include "daemon/supervisor/engine_logs.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "absl/strings/string_view.h"
#include "proto/base/clock.h"
#include "proto/base/thread_priority.h"

namespace ringd {
namespace {

constexpr std::uint64_t kWakeKey = 0;
// In one go, so that all engines have their turns: half a pipe.
constexpr std::size_t kTurn = std::size_t{32} << 10;
// The most that an unprivileged process can make of a pipe. It ends the reading of one into which a
// child of the engine still writes.
constexpr std::size_t kMostLeft = std::size_t{1} << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<EngineLogs>> EngineLogs::Create() {
  absl::StatusOr<WakingEpoll> epoll = WakingEpoll::Create(kWakeKey);
  if (!epoll.ok()) return epoll.status();
  std::unique_ptr<EngineLogs> logs(new EngineLogs(*std::move(epoll)));
  logs->thread_ = std::thread(&EngineLogs::Run, logs.get());
  ::pthread_setname_np(logs->thread_.native_handle(), "ringd-logs");
  return logs;
}

EngineLogs::EngineLogs(WakingEpoll epoll) : epoll_(std::move(epoll)) {}

EngineLogs::~EngineLogs() {
  epoll_.Wake();
  thread_.join();
  const MutexLock lock(mutex_);
  for (auto& [log, source] : sources_) {
    Read(source, kMostLeft);
    source.reader.End(Clock::now());
  }
}

std::uint64_t EngineLogs::Add(pid_t pid, UniqueFd pipe) {
  const MutexLock lock(mutex_);
  const std::uint64_t log = next_++;
  // Refused only without memory; what there is to read is then read by Finish.
  epoll_.Watch(pipe.get(), EPOLLIN, log);
  sources_.emplace(log, Source{std::move(pipe), EngineLogReader(pid)});
  return log;
}

void EngineLogs::BelongsTo(std::uint64_t log, uid_t uid) {
  const MutexLock lock(mutex_);
  const auto found = sources_.find(log);
  if (found == sources_.end()) return;
  found->second.reader.Share(
      &users_.try_emplace(uid, EngineLogReader::kLines, EngineLogReader::kPeriod).first->second);
}

std::string EngineLogs::Finish(std::uint64_t log) {
  const MutexLock lock(mutex_);
  const auto found = sources_.find(log);
  if (found == sources_.end()) return "";
  Source& source = found->second;
  Read(source, kMostLeft);
  source.reader.End(Clock::now());
  std::string last_line = source.reader.last_line();
  StopReading(source);
  sources_.erase(found);
  return last_line;
}

std::string EngineLogs::LastLine(std::uint64_t log) {
  const MutexLock lock(mutex_);
  const auto found = sources_.find(log);
  return found == sources_.end() ? "" : found->second.reader.last_line();
}

bool EngineLogs::Read(Source& source, std::size_t most) {
  std::array<char, 4096> piece;
  for (std::size_t total = 0; source.pipe.valid() && total < most;) {
    const ssize_t length = ::read(source.pipe.get(), piece.data(), piece.size());
    if (length == 0) return true;
    if (length < 0 && errno == EINTR) continue;
    if (length < 0) return errno != EAGAIN;
    const auto size = static_cast<std::size_t>(length);
    source.reader.Take(absl::string_view(piece.data(), size), Clock::now());
    total += size;
  }
  return !source.pipe.valid();
}

void EngineLogs::StopReading(Source& source) {
  if (!source.pipe.valid()) return;
  epoll_.Unwatch(source.pipe.get());
  source.pipe.Reset();
}

void EngineLogs::ReadSome(std::uint64_t log) {
  const MutexLock lock(mutex_);
  const auto found = sources_.find(log);
  // It has been finished meanwhile.
  if (found == sources_.end() || !Read(found->second, kTurn)) return;
  found->second.reader.End(Clock::now());
  // What it said last is kept until Finish.
  StopReading(found->second);
}

void EngineLogs::Run() {
  ServeBesideEngine();
  std::array<epoll_event, 64> events;
  for (;;) {
    const int count = ::epoll_wait(epoll_.fd(), events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < count; ++i) {
      const std::uint64_t key = events[static_cast<std::size_t>(i)].data.u64;
      if (key == kWakeKey) return;
      ReadSome(key);
    }
  }
}

}  // namespace ringd
