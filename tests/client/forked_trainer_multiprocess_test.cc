// A trainer that forks, seen from outside: by a ringd in another process. The trainers are forked
// before this process first uses gRPC, as real ones are.
#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "client/ringd.h"
#include "tests/client/fake_ringd.h"
#include "tests/client/test_context.h"

namespace ringd {
namespace {

// A process that runs `body` once it has been told where ringd is, and exits with its result.
class Trainer {
 public:
  template <typename Body>
  explicit Trainer(Body body) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[1]);
      char socket[128] = {};
      if (::read(ends[0], socket, sizeof(socket) - 1) <= 0) ::_exit(100);
      ringd_options options{};
      options.struct_size = sizeof(options);
      options.socket = socket;
      options.size = options.local_size = 1;
      ::_exit(body(options, ends[0]));
    }
    ::close(ends[0]);
    start_ = ends[1];
  }
  ~Trainer() { ::close(start_); }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  void Start(const FakeRingd& ringd) {
    const std::string& socket = ringd.socket();
    REQUIRE(::write(start_, socket.c_str(), socket.size() + 1) > 0);
  }

  // The exit code; -1 if it did not exit by itself in time (it is killed then).
  int ExitCode() const { return ExitCodeOf(pid_); }

  static int ExitCodeOf(pid_t pid) {
    int status = 0;
    if (!Eventually([&] { return ::waitpid(pid, &status, WNOHANG) == pid; })) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, &status, 0);
      return -1;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = -1;
  int start_ = -1;
};

// One operation on a context of its own. 0: it went well.
int OpenAndReduce(const ringd_options& options) {
  ringd_context* context = nullptr;
  if (ringd_open(&options, &context) != RINGD_OK) {
    ::dprintf(2, "open: %s\n", ringd_last_error());
    return 10;
  }
  const std::int64_t count = 1;
  const ringd_tensor tensor = TestContext::FloatTensor("x", &count);
  ringd_registration registration = 0;
  if (ringd_register(context, &tensor, 1, &registration) != RINGD_OK) return 11;
  float value = 2;
  ringd_operation operation = 0;
  if (ringd_submit(context, registration, &value, &value, &operation) != RINGD_OK) return 12;
  if (ringd_wait(context, operation, kPatienceMs) != RINGD_OK || value != 4) return 13;
  ringd_close(context);
  return 0;
}

bool IsBlocked(const std::string& thread, int signal) {
  std::ifstream status("/proc/self/task/" + thread + "/status");
  const std::string field = "SigBlk:";
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(field)) continue;
    const std::uint64_t mask = std::strtoull(line.c_str() + field.size(), nullptr, 16);
    return ((mask >> (signal - 1)) & 1) != 0;
  }
  return true;  // it has just ended
}

// How many threads besides the main one there are, and how many of them take one of the signals.
struct OtherThreads {
  int all = 0;
  int take_signals = 0;
};
OtherThreads LookAtThreads() {
  OtherThreads threads;
  DIR* const folder = ::opendir("/proc/self/task");
  while (const dirent* const entry = ::readdir(folder)) {
    const std::string thread = entry->d_name;
    if (thread.front() == '.' || thread == std::to_string(::getpid())) continue;
    ++threads.all;
    if (!IsBlocked(thread, SIGUSR1) || !IsBlocked(thread, SIGTERM)) ++threads.take_signals;
  }
  ::closedir(folder);
  return threads;
}

TEST_CASE("Forked trainers: lifelines, contexts and signals are kept apart") {
  Trainer leaves_child_behind([](const ringd_options& options, int gate) {
    ringd_context* context = nullptr;
    if (ringd_open(&options, &context) != RINGD_OK) return 1;
    if (::fork() == 0) {
      // Lives until the test ends.
      char end;
      (void)!::read(gate, &end, 1);
      ::_exit(0);
    }
    return 0;
  });
  Trainer forks_while_open([](const ringd_options& options, int) {
    ringd_context* context = nullptr;
    if (ringd_open(&options, &context) != RINGD_OK) return 1;
    const pid_t child = ::fork();
    if (child == 0) {
      ringd_context* own = nullptr;
      if (ringd_open(&options, &own) != RINGD_FAILED_PRECONDITION) ::_exit(1);
      ::_exit(std::strstr(ringd_last_error(), "fork") != nullptr ? 0 : 2);
    }
    if (Trainer::ExitCodeOf(child) != 0) return 2;
    // The parent's goes on, and it can open others.
    ringd_place place{};
    place.struct_size = sizeof(place);
    if (ringd_get_place(context, &place) != RINGD_OK) return 3;
    const int code = OpenAndReduce(options);
    ringd_close(context);
    return code;
  });
  Trainer forks_after_closing([](const ringd_options& options, int) {
    const int code = OpenAndReduce(options);
    if (code != 0) return code;
    const pid_t child = ::fork();
    if (child == 0) ::_exit(OpenAndReduce(options));
    return Trainer::ExitCodeOf(child);
  });
  // So that a trainer which waits for a signal gets it.
  Trainer looks_at_threads([](const ringd_options& options, int) {
    const std::string own = std::to_string(::getpid());
    if (LookAtThreads().all != 0 || IsBlocked(own, SIGUSR1)) return 1;
    ringd_context* context = nullptr;
    if (ringd_open(&options, &context) != RINGD_OK) return 2;
    if (OpenAndReduce(options) != 0) return 3;
    const OtherThreads threads = LookAtThreads();
    // Of gRPC, besides the library's own.
    if (threads.all < 2) return 4;
    if (threads.take_signals != 0) return 5;
    if (IsBlocked(own, SIGUSR1) || IsBlocked(own, SIGTERM)) return 6;
    ringd_close(context);
    return 0;
  });

  FakeRingd ringd;
  leaves_child_behind.Start(ringd);
  CHECK(leaves_child_behind.ExitCode() == 0);
  CHECK(ringd.join_calls() == 1);
  // Its child still runs, but the session ended with the trainer.
  CHECK(Eventually([&] { return ringd.live_sessions() == 0; }));

  forks_while_open.Start(ringd);
  CHECK(forks_while_open.ExitCode() == 0);
  CHECK(ringd.join_calls() == 3);

  forks_after_closing.Start(ringd);
  CHECK(forks_after_closing.ExitCode() == 0);
  CHECK(ringd.join_calls() == 5);

  looks_at_threads.Start(ringd);
  CHECK(looks_at_threads.ExitCode() == 0);
}

}  // namespace
}  // namespace ringd
