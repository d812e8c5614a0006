#include "daemon/supervisor/engine_trial.h"

#include <poll.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/channel/engine_status.h"
#include "daemon/supervisor/engine_logs.h"
#include "daemon/supervisor/engine_process.h"
#include "proto/base/clock.h"
#include "proto/base/unix_socket.h"
#include "proto/channel/channel.h"

namespace ringd {
namespace {

constexpr auto kPatience = std::chrono::seconds(10);
constexpr int kEndMs = 500;
constexpr std::size_t kTurnBytes = std::size_t{64} << 10;

// What it answers; an error: the channel has ended before, or the time.
absl::StatusOr<v1::EngineStarted> AwaitStarted(Channel& channel) {
  const Clock::time_point deadline = Clock::now() + kPatience;
  std::optional<v1::EngineStarted> started;
  while (!started.has_value()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return absl::DeadlineExceededError("it has not answered for 10 s");
    pollfd event{.fd = channel.socket(), .events = POLLIN, .revents = 0};
    if (channel.WaitsToSend()) event.events |= POLLOUT;
    ::poll(&event, 1, static_cast<int>(left));
    channel.Flush();
    if ((event.revents & ~POLLOUT) == 0) continue;
    const absl::Status status = channel.Read(kTurnBytes, [&](const ChannelFrame& frame) {
      v1::FromEngine word;
      if (word.ParseFromString(frame.bytes) && word.has_started()) started = word.started();
    });
    if (!status.ok() && !started.has_value()) return status;
  }
  return *std::move(started);
}

}  // namespace

absl::StatusOr<std::string> TryEngine(const EngineProgram& program,
                                      const std::vector<std::string>& arguments,
                                      v1::EngineStart start) {
  absl::StatusOr<std::pair<UniqueFd, UniqueFd>> ends = UnixSocketPair();
  if (!ends.ok()) return ends.status();
  absl::StatusOr<std::unique_ptr<EngineLogs>> logs = EngineLogs::Create();
  if (!logs.ok()) return logs.status();
  absl::StatusOr<std::unique_ptr<EngineProcess>> process =
      EngineProcess::Start(program, arguments, ends->second.get());
  ends->second.Reset();
  if (!process.ok()) return process.status();
  const std::uint64_t log = (*logs)->Add((*process)->pid(), (*process)->TakeLog());
  Channel channel(std::move(ends->first), {}, [] {});
  start.set_check_only(true);
  v1::ToEngine order;
  *order.mutable_start() = std::move(start);
  channel.Send(order.SerializeAsString());
  const absl::StatusOr<v1::EngineStarted> started = AwaitStarted(channel);
  channel.Close();
  if (started.ok()) {
    absl::Status status = ReadStatus(started->status());
    if (status.ok()) return started->backend();
    return status;
  }
  // Its end is mostly why the channel has ended.
  pollfd end{.fd = (*process)->pidfd(), .events = POLLIN, .revents = 0};
  ::poll(&end, 1, kEndMs);
  const bool ended = (*process)->Reap();
  const std::string last_line = (*logs)->Finish(log);
  return absl::Status(
      started.status().code(),
      absl::StrCat("the engine, ", program.path(), ", can't be used: ",
                   ended ? absl::StrCat("it ", DescribeEngineEnd(*(*process)->end()))
                         : std::string(started.status().message()),
                   last_line.empty() ? "" : absl::StrCat("; its last words: ", last_line)));
}

}  // namespace ringd
