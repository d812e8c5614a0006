// The kernel takes only so many descriptors of a user's that nobody has received yet. Root is
// exempt, and a limit is a process's: so a child of another user tries it.
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/channel/channel_loop.h"
#include "proto/base/clock.h"
#include "proto/base/unix_socket.h"

namespace ringd {
namespace {

constexpr int kFrames = 12;
constexpr int kFdsOfFrame = 8;
// Reached before all frames are on their way; the others wait in this process, below it, too.
constexpr rlim_t kLimit = 64;

std::chrono::nanoseconds ProcessorTime() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

enum Outcome : int { kGood, kNotPrepared, kNotSent, kBusy, kNotReceived };

Outcome SendMoreThanTheKernelTakes() {
  const rlimit limit{kLimit, kLimit};
  constexpr uid_t kNobody = 65534;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return kNotPrepared;
  if (::geteuid() == 0 && ::setresuid(kNobody, kNobody, kNobody) != 0) return kNotPrepared;
  auto ends = UnixSocketPair();
  auto loop = ChannelLoop::Start("test");
  if (!ends.ok() || !loop.ok()) return kNotPrepared;
  auto channel = (*loop)->Add(std::move(ends->first), {[](ChannelFrame) {}, [](absl::Status) {}});
  if (!channel.ok()) return kNotPrepared;
  for (int i = 0; i < kFrames; ++i) {
    std::vector<UniqueFd> fds;
    for (int j = 0; j < kFdsOfFrame; ++j) fds.emplace_back(::open("/dev/null", O_CLOEXEC));
    if (!fds.back().valid() || !(*channel)->Send("frame", std::move(fds))) return kNotSent;
  }
  if (!(*channel)->WaitsToSend()) return kNotSent;

  // The socket is writable all the time.
  constexpr std::chrono::milliseconds kWait{400};
  const auto before = ProcessorTime();
  std::this_thread::sleep_for(kWait);
  if (ProcessorTime() - before > kWait / 4) return kBusy;

  Channel other(std::move(ends->second), {}, nullptr);
  int received = 0;
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  while (received < kFrames && Clock::now() < deadline) {
    pollfd readable{other.socket(), POLLIN, 0};
    ::poll(&readable, 1, 100);
    const absl::Status status = other.Read(1, [&](const ChannelFrame& frame) {
      if (frame.fds.size() == kFdsOfFrame) ++received;
    });
    if (!status.ok()) return kNotReceived;
  }
  return received == kFrames ? kGood : kNotReceived;
}

TEST_CASE("ChannelLoop: descriptors that the kernel does not take yet wait, and nobody is busy") {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(SendMoreThanTheKernelTakes());
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == kGood);
}

}  // namespace
}  // namespace ringd
