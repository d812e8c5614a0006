#include "daemon/supervisor/engine_logs.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "absl/strings/string_view.h"
#include "proto/base/clock.h"
#include "proto/base/errno_status.h"
#include "proto/base/thread_priority.h"
#include "proto/base/unix_socket.h"

namespace ringd {
namespace {

constexpr std::uint64_t kWakeKey = 0;
// In one go, so that all engines have their turns.
constexpr std::size_t kTurn = std::size_t{32} << 10;
// Of what an engine leaves. It ends the reading of a socket into which somebody still writes.
constexpr std::size_t kMostLeft = std::size_t{1} << 20;

absl::Status KeepFromBlocking(const UniqueFd& end) {
  if (::fcntl(end.get(), F_SETFL, O_NONBLOCK) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, "fcntl");
}

}  // namespace

absl::StatusOr<EngineLogs::Ends> EngineLogs::MakeEnds() {
  absl::StatusOr<std::pair<UniqueFd, UniqueFd>> pair = UnixSocketPair();
  if (!pair.ok()) return pair.status();
  Ends ends{std::move(pair->first), std::move(pair->second)};
  for (const UniqueFd* end : {&ends.reader, &ends.writer}) {
    if (absl::Status status = KeepFromBlocking(*end); !status.ok()) return status;
  }
  RefuseDescriptors(ends.reader.get());
  return ends;
}

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
  Nudges nudges;
  const MutexLock lock(mutex_);
  for (auto& [log, source] : sources_) {
    Read(source, kMostLeft, nudges);
    source.reader.End(Clock::now());
  }
}

std::uint64_t EngineLogs::Add(pid_t pid, UniqueFd reader) {
  const MutexLock lock(mutex_);
  const std::uint64_t log = next_++;
  // Refused only without memory; what there is to read is then read by Finish.
  epoll_.Watch(reader.get(), EPOLLIN, log);
  sources_.emplace(log, Source{std::move(reader), EngineLogReader(pid)});
  return log;
}

void EngineLogs::BelongsTo(std::uint64_t log, uid_t uid, const std::string& job) {
  const MutexLock lock(mutex_);
  const auto found = sources_.find(log);
  if (found == sources_.end()) return;
  found->second.reader.BelongsTo(
      job,
      &users_.try_emplace(uid, EngineLogReader::kLines, EngineLogReader::kPeriod).first->second);
}

std::string EngineLogs::Finish(std::uint64_t log) {
  Nudges nudges;
  const MutexLock lock(mutex_);
  const auto found = sources_.find(log);
  if (found == sources_.end()) return "";
  Source& source = found->second;
  Read(source, kMostLeft, nudges);
  source.reader.End(Clock::now());
  std::string last_line = source.reader.last_line();
  StopReading(source, nudges);
  sources_.erase(found);
  return last_line;
}

std::string EngineLogs::LastLine(std::uint64_t log) {
  const MutexLock lock(mutex_);
  const auto found = sources_.find(log);
  return found == sources_.end() ? "" : found->second.reader.last_line();
}

bool EngineLogs::Read(Source& source, std::size_t most, Nudges& nudges) {
  std::array<char, 4096> piece;
  for (std::size_t total = 0; source.socket.valid() && total < most;) {
    // Descriptors that were sent along, where the kernel lets that be, are closed as we read.
    nudges.Set(true);
    const ssize_t length = ::read(source.socket.get(), piece.data(), piece.size());
    const int error = errno;
    nudges.Set(false);
    if (length == 0) return true;
    if (length < 0 && error == EINTR) continue;
    if (length < 0) return error != EAGAIN;
    const auto size = static_cast<std::size_t>(length);
    source.reader.Take(absl::string_view(piece.data(), size), Clock::now());
    total += size;
  }
  return !source.socket.valid();
}

void EngineLogs::StopReading(Source& source, Nudges& nudges) {
  if (!source.socket.valid()) return;
  epoll_.Unwatch(source.socket.get());
  nudges.Set(true);
  source.socket.Reset();
  nudges.Set(false);
}

void EngineLogs::ReadSome(std::uint64_t log, Nudges& nudges) {
  const MutexLock lock(mutex_);
  const auto found = sources_.find(log);
  // It has been finished meanwhile.
  if (found == sources_.end() || !Read(found->second, kTurn, nudges)) return;
  found->second.reader.End(Clock::now());
  // What it said last is kept until Finish.
  StopReading(found->second, nudges);
}

void EngineLogs::Run() {
  ServeBesideEngine();
  Nudges nudges;
  std::array<epoll_event, 64> events;
  for (;;) {
    const int count = ::epoll_wait(epoll_.fd(), events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < count; ++i) {
      const std::uint64_t key = events[static_cast<std::size_t>(i)].data.u64;
      if (key == kWakeKey) return;
      ReadSome(key, nudges);
    }
  }
}

}  // namespace ringd
