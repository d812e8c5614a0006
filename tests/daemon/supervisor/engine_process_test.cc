#include "daemon/supervisor/engine_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "proto/base/unix_socket.h"
#include "tests/count_descriptors.h"

namespace ringd {
namespace {

using Catch::Contains;

// A shell in an engine's place.
std::unique_ptr<EngineProcess> StartShell(const std::string& script, int channel = STDIN_FILENO) {
  auto engine = EngineProcess::Start(*EngineProgram::At("/bin/sh"), {"-c", script}, channel);
  REQUIRE(engine.ok());
  return *std::move(engine);
}

bool AwaitEnd(EngineProcess& engine) {
  pollfd end{engine.pidfd(), POLLIN, 0};
  return ::poll(&end, 1, 20'000) == 1 && engine.Reap();
}

std::string EndOf(const std::string& script) {
  const auto engine = StartShell(script);
  REQUIRE(AwaitEnd(*engine));
  return DescribeEngineEnd(*engine->end());
}

bool Exists(pid_t pid) { return ::kill(pid, 0) == 0 || errno != ESRCH; }

TEST_CASE("EngineProcess: speaks on its channel as descriptor 3, and sees that we have gone") {
  auto sockets = UnixSocketPair();
  REQUIRE(sockets.ok());
  auto [ours, theirs] = *std::move(sockets);
  const auto engine =
      StartShell("echo hello >&3; head -n 1 <&3; cat <&3; echo closed", theirs.get());
  theirs.Reset();
  const UniqueFd log = engine->TakeLog();
  char text[6] = {};
  REQUIRE(::recv(ours.get(), text, sizeof(text), MSG_WAITALL) == 6);
  CHECK(std::string(text, 6) == "hello\n");
  REQUIRE(::send(ours.get(), "answer\n", 7, 0) == 7);
  CHECK_FALSE(engine->Reap());
  ours.Reset();
  REQUIRE(AwaitEnd(*engine));
  char line[100] = {};
  CHECK(::read(log.get(), line, sizeof(line)) == 14);
  CHECK(std::string(line) == "answer\nclosed\n");
}

TEST_CASE("EngineProcess: how it ended is told by code or signal, once, and no zombie is left") {
  CHECK(EndOf("exit 0") == "exited with code 0");
  CHECK(EndOf("exit 3") == "exited with code 3");
  CHECK(EndOf("kill -KILL $$") == "was killed by signal 9 (Killed)");
  CHECK(EndOf("ulimit -c 0; kill -SEGV $$") == "was killed by signal 11 (Segmentation fault)");
  CHECK(DescribeEngineEnd({.exit = {.signal = SIGABRT}, .dumped_core = true}) ==
        "was killed by signal 6 (Aborted) and dumped core");
  const auto engine = StartShell("exit 5");
  const pid_t pid = engine->pid();
  REQUIRE(AwaitEnd(*engine));
  CHECK_FALSE(Exists(pid));
  // Also if somebody asks again, or would end it.
  engine->End();
  CHECK(engine->Reap());
  CHECK(engine->end()->exit.exit_code == 5);
}

TEST_CASE("EngineProcess: End kills one that hears nothing, also one that is stopped") {
  const auto engine = StartShell("trap '' TERM INT HUP; kill -STOP $$");
  const pid_t pid = engine->pid();
  siginfo_t info{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(pid), &info, WSTOPPED | WNOWAIT) == 0);
  CHECK_FALSE(engine->Reap());
  engine->End();
  engine->End();
  REQUIRE(AwaitEnd(*engine));
  CHECK(engine->end()->exit.signal == SIGKILL);
}

TEST_CASE("EngineProcess: goes with its owner, and leaves no zombie and no descriptor") {
  const std::size_t before = CountDescriptors();
  std::vector<pid_t> pids;
  for (int i = 0; i < 100; ++i) pids.push_back(StartShell("exec sleep 60")->pid());
  // Those that have ended, but were not reaped, too.
  for (int i = 0; i < 10; ++i) {
    const auto engine = StartShell("exit 0");
    pids.push_back(engine->pid());
    pollfd end{engine->pidfd(), POLLIN, 0};
    CHECK(::poll(&end, 1, 20'000) == 1);
  }
  for (const pid_t pid : pids) CHECK_FALSE(Exists(pid));
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
  CHECK(errno == ECHILD);
  CHECK(CountDescriptors() == before);
}

TEST_CASE("EngineProcess: its log never holds it up, whether or not somebody reads") {
  // 1 MiB, of which a pipe takes 64 KiB.
  const auto engine = StartShell(
      "i=0; while [ $i -lt 16384 ]; do "
      "echo 0123456789012345678901234567890123456789012345678901234567890123; i=$((i+1)); done "
      "2>/dev/null; exit 4");
  REQUIRE(AwaitEnd(*engine));
  CHECK(engine->end()->exit.exit_code == 4);
}

TEST_CASE("EngineProcess: a program that can't be run is an error with the file and the cause") {
  char path[] = "/tmp/ringd-engine-XXXXXX";
  UniqueFd file(::mkstemp(path));
  REQUIRE(::fchmod(file.get(), 0700) == 0);
  const std::string_view script = "#!/no/such/interpreter\n";
  REQUIRE(::write(file.get(), script.data(), script.size()) == static_cast<ssize_t>(script.size()));
  file.Reset();  // one that is open for writing is busy
  const auto program = EngineProgram::At(path);
  REQUIRE(program.ok());
  const std::size_t before = CountDescriptors();
  const auto engine = EngineProcess::Start(*program, {}, STDIN_FILENO);
  CHECK(engine.status() == absl::NotFoundError(std::string("the engine can't be started: start ") +
                                               path + ": No such file or directory"));
  CHECK(CountDescriptors() == before);
  ::unlink(path);
}

TEST_CASE("EngineProcess: where its user may have no more processes, that is the cause") {
  if (::geteuid() != 0) return;  // only root may become the user whom the limit binds
  constexpr uid_t kNobody = 65'534;
  const auto program = EngineProgram::At("/bin/true");
  REQUIRE(program.ok());
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit none{0, 0};
    if (::setrlimit(RLIMIT_NPROC, &none) != 0 || ::setuid(kNobody) != 0) ::_exit(2);
    const auto engine = EngineProcess::Start(*program, {}, STDIN_FILENO);
    const bool is_told =
        absl::StartsWith(engine.status().message(),
                         "the engine can't be started: start /bin/true: no more processes: ");
    ::_exit(is_told ? 0 : 1);
  }
  REQUIRE(child > 0);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("EngineProcess: starts what was opened, whatever its path leads to by then") {
  char path[] = "/tmp/ringd-engine-XXXXXX";
  ::close(::mkstemp(path));
  const std::string other = std::string(path) + "-new";
  REQUIRE(std::filesystem::copy_file("/bin/true", path,
                                     std::filesystem::copy_options::overwrite_existing));
  REQUIRE(std::filesystem::copy_file("/bin/false", other));
  const auto program = EngineProgram::At(path);
  REQUIRE(program.ok());
  std::filesystem::rename(other, path);
  for (int run = 0; run < 2; ++run) {
    const auto engine = EngineProcess::Start(*program, {}, STDIN_FILENO);
    REQUIRE(engine.ok());
    REQUIRE(AwaitEnd(**engine));
    CHECK((*engine)->end()->exit.exit_code == 0);
    std::filesystem::remove(path);  // the next time there is none
  }
}

TEST_CASE("EngineProcess: without a descriptor left the start fails and nothing is left") {
  const auto program = EngineProgram::At("/bin/sleep");
  REQUIRE(program.ok());
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  // Its pipe has two; a pidfd would be the third.
  const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::close(next);
  rlimit small = limit;
  small.rlim_cur = static_cast<rlim_t>(next) + 2;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &small) == 0);
  const auto engine = EngineProcess::Start(*program, {"60"}, STDIN_FILENO);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
  REQUIRE_FALSE(engine.ok());
  CHECK(absl::IsResourceExhausted(engine.status()));
  CHECK_THAT(std::string(engine.status().message()), Contains("Too many open files"));
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
}

}  // namespace
}  // namespace ringd
