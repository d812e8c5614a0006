#include "client/cli/processes/supervisor.h"

#include <fcntl.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/processes/signals.h"
#include "proto/base/unique_fd.h"

namespace ringd::cli {
namespace {

using Catch::Matchers::Contains;
using std::chrono::milliseconds;
using std::chrono::seconds;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::pair<UniqueFd, UniqueFd> MakePipe() {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// The reader's end first.
std::pair<UniqueFd, UniqueFd> MakeTerminal() {
  int reader = -1;
  int writer = -1;
  REQUIRE(::openpty(&reader, &writer, nullptr, nullptr, nullptr) == 0);
  return {UniqueFd(reader), UniqueFd(writer)};
}

// A folder for one test, with files that take the run's output.
class Workplace {
 public:
  Workplace() {
    char name[] = "/tmp/ringctl-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    folder_ = name;
    out_.Reset(::open((folder_ + "/out").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600));
    err_.Reset(::open((folder_ + "/err").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600));
    options_.standard_output = out_.get();
    options_.standard_error = err_.get();
    options_.grace = milliseconds(300);
    PrepareSignals();
  }
  ~Workplace() { std::filesystem::remove_all(folder_); }

  // Runs each script as one rank, by sh.
  RunOutcome Run(const std::vector<std::string>& scripts) {
    std::vector<RankCommand> commands;
    for (const std::string& script : scripts) {
      const int rank = static_cast<int>(commands.size());
      commands.push_back({rank,
                          {"sh", "-c", script},
                          {"PATH=/usr/bin:/bin", "RANK=" + std::to_string(rank), "D=" + folder_}});
    }
    const absl::StatusOr<RunOutcome> outcome = RunRanks(commands, options_);
    REQUIRE(outcome.ok());
    CHECK(outcome->ends.size() == scripts.size());
    return *outcome;
  }

  SupervisorOptions& options() { return options_; }
  std::string out() const { return ReadFile(folder_ + "/out"); }
  std::string err() const { return ReadFile(folder_ + "/err"); }
  std::string file(const std::string& name) const { return folder_ + "/" + name; }

 private:
  std::string folder_;
  UniqueFd out_;
  UniqueFd err_;
  SupervisorOptions options_;
};

// A process that has ended, or waits to be reaped by whoever adopted it.
bool IsGone(const std::string& pid_file) {
  int pid = 0;
  if (!absl::SimpleAtoi(ReadFile(pid_file), &pid)) return false;
  const std::string status = ReadFile(absl::StrCat("/proc/", pid, "/stat"));
  return status.empty() || status.find(") Z ") != std::string::npos;
}

bool SoonGone(const std::string& pid_file) {
  const Clock::time_point deadline = Clock::now() + seconds(30);
  while (!IsGone(pid_file)) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return true;
}

}  // namespace

TEST_CASE("RunRanks: ranks that all exit with 0 are done") {
  Workplace place;
  const RunOutcome outcome = place.Run({"echo a; echo b >&2", "echo c"});
  CHECK(outcome.cause == RunOutcome::Cause::kAllDone);
  CHECK_FALSE(outcome.first_failure.has_value());
  CHECK_THAT(place.out(), Contains("[0] a\n") && Contains("[1] c\n"));
  CHECK(place.err() == "[0] b\n");
}

TEST_CASE("RunRanks: the first failure is named, by its exit code, and ends the others") {
  Workplace place;
  std::vector<RankEnd> reported;
  place.options().on_failure = [&](const RankEnd& end) { reported.push_back(end); };
  const Clock::time_point start = Clock::now();
  const RunOutcome outcome =
      place.Run({"exec sleep 60", "exit 7", "trap '' TERM; sleep 60 & wait; wait"});
  CHECK(Clock::now() - start < seconds(10));
  CHECK(outcome.cause == RunOutcome::Cause::kRankFailed);
  REQUIRE(outcome.first_failure.has_value());
  const RankEnd& first = outcome.ends[*outcome.first_failure];
  CHECK(first.rank == 1);
  CHECK(first.end.exit_code == 7);
  CHECK(Describe(first.end) == "exited with code 7");
  REQUIRE(reported.size() == 1);
  CHECK(reported[0].pid == first.pid);
  std::map<int, RankEnd> by_rank;
  for (const RankEnd& end : outcome.ends) by_rank[end.rank] = end;
  CHECK(by_rank[0].end.signal == SIGTERM);
  CHECK(by_rank[0].signalled_by_us);
  CHECK(by_rank[2].end.signal == SIGKILL);
}

TEST_CASE("RunRanks: a rank killed by a signal is named by it") {
  Workplace place;
  const RunOutcome outcome = place.Run({"sleep 0.1", "kill -9 $$"});
  REQUIRE(outcome.first_failure.has_value());
  const RankEnd& first = outcome.ends[*outcome.first_failure];
  CHECK(first.rank == 1);
  CHECK(Describe(first.end) == "was killed by SIGKILL");
}

TEST_CASE("RunRanks: the others have the grace time to report their own error") {
  Workplace place;
  place.options().grace = seconds(20);
  const Clock::time_point start = Clock::now();
  const RunOutcome outcome =
      place.Run({"sleep 0.3; echo lost rank 1 >&2; exit 3", "exit 1", "sleep 0.2"});
  CHECK(Clock::now() - start < seconds(10));
  CHECK(place.err() == "[0] lost rank 1\n");
  CHECK(outcome.ends[*outcome.first_failure].rank == 1);
  CHECK_FALSE(outcome.ends.back().signalled_by_us);
}

TEST_CASE("RunRanks: no output is lost, whoever writes how") {
  Workplace place;
  // Lines in pieces, a tail without a line end, and more than a pipe holds just before a kill.
  const RunOutcome outcome = place.Run({
      "printf 'par'; sleep 0.05; printf 'tial\\ntail'",
      "i=0; while [ $i -lt 5000 ]; do echo line $i of rank 1; i=$((i+1)); done; kill -9 $$",
  });
  CHECK(outcome.first_failure.has_value());
  const std::string out = place.out();
  CHECK_THAT(out, Contains("[0] partial\n") && Contains("[0] tail\n"));
  int expected = 0;
  for (const absl::string_view line : absl::StrSplit(out, '\n', absl::SkipEmpty())) {
    if (line == absl::StrCat("[1] line ", expected, " of rank 1")) ++expected;
  }
  CHECK(expected == 5000);
}

TEST_CASE("RunRanks: no output is lost if ranks end while it waits for a slow reader") {
  Workplace place;
  auto [reader, writer] = MakePipe();
  place.options().standard_output = writer.get();
  place.options().prefix = false;
  // More than a pipe holds, less than two: the rank ends while a write waits for the reader.
  constexpr std::size_t kBytes = 120'000;
  std::size_t seen = 0;
  bool has_ended = false;
  std::thread slow([&] {
    has_ended = SoonGone(place.file("pid"));
    // Time for the write to see that, too.
    std::this_thread::sleep_for(milliseconds(50));
    char buffer[4096];
    for (ssize_t count = 0; (count = ::read(reader.get(), buffer, sizeof buffer)) > 0;) {
      seen += static_cast<std::size_t>(count);
    }
  });
  const RunOutcome outcome =
      place.Run({absl::StrCat("echo $$ > $D/pid; yes | head -c ", kBytes, "; sleep 0.3")});
  writer.Reset();
  slow.join();
  CHECK(has_ended);
  CHECK(outcome.cause == RunOutcome::Cause::kAllDone);
  CHECK(seen == kBytes);
}

TEST_CASE("RunRanks: without prefix the bytes are as they were written") {
  Workplace place;
  place.options().prefix = false;
  place.options().log_folder = place.file("");
  place.Run({"printf 'a\\000b\\n\\377'"});
  CHECK(place.out() == std::string("a\0b\n\xff", 5));
  CHECK(ReadFile(place.file("rank-0.out")) == std::string("a\0b\n\xff", 5));
  CHECK(ReadFile(place.file("rank-0.err")).empty());
}

TEST_CASE("RunRanks: rank 0 reads the input, the others nothing") {
  Workplace place;
  std::ofstream(place.file("input")) << "hello\n";
  const UniqueFd input(::open(place.file("input").c_str(), O_RDONLY | O_CLOEXEC));
  place.options().standard_input = input.get();
  place.Run({"cat", "cat; echo end"});
  CHECK_THAT(place.out(),
             Contains("[0] hello\n") && Contains("[1] end\n") && !Contains("[1] hello"));
}

TEST_CASE("RunRanks: what a rank leaves behind is ended with the run") {
  Workplace place;
  const RunOutcome outcome =
      place.Run({"sleep 60 & echo $! > $D/polite; (trap '' TERM; sleep 60 & wait; sleep 60) & echo "
                 "$! > $D/stubborn; exit 0"});
  CHECK(outcome.cause == RunOutcome::Cause::kAllDone);
  CHECK(SoonGone(place.file("polite")));
  CHECK(SoonGone(place.file("stubborn")));
}

TEST_CASE("RunRanks: a rank that ends well long before the others is told, unless it goes on") {
  Workplace place;
  std::vector<int> told;
  place.options().on_early_end = [&](const RankEnd& end) {
    told.push_back(end.rank);
    std::ofstream(place.file("told")) << end.rank;
  };
  const RunOutcome outcome =
      place.Run({"exit 0", "while ! test -e $D/told; do sleep 0.05; done; sleep 0.2",
                 "(while ! test -e $D/told; do sleep 0.05; done; sleep 0.2) & exit 0"});
  CHECK(outcome.cause == RunOutcome::Cause::kAllDone);
  CHECK(told == std::vector<int>{0});
}

TEST_CASE("RunRanks: a run that takes too long is ended") {
  Workplace place;
  place.options().time_limit = Clock::now() + milliseconds(200);
  const RunOutcome outcome = place.Run({"exec sleep 60", "exec sleep 60"});
  CHECK(outcome.cause == RunOutcome::Cause::kTimeLimit);
  CHECK(outcome.ends[0].end.signal == SIGTERM);
}

TEST_CASE("RunRanks: a signal to ringctl goes to the ranks; a second one kills them") {
  Workplace place;
  const bool twice = GENERATE(false, true);
  place.options().grace = seconds(twice ? 60 : 5);
  const pid_t self = ::getpid();
  std::thread user([&] {
    for (int i = 0; i < (twice ? 2 : 1); ++i) {
      std::this_thread::sleep_for(milliseconds(300));
      ::kill(self, SIGINT);
    }
  });
  const Clock::time_point start = Clock::now();
  const RunOutcome outcome = place.Run({twice ? "trap '' INT TERM; sleep 60; sleep 60"
                                              : "trap 'echo bye; exit 0' INT; sleep 60 & wait"});
  user.join();
  CHECK(Clock::now() - start < seconds(10));
  CHECK(outcome.cause == RunOutcome::Cause::kSignal);
  CHECK(outcome.signal == SIGINT);
  if (twice) {
    CHECK(outcome.ends[0].end.signal == SIGKILL);
  } else {
    CHECK(place.out() == "[0] bye\n");
  }
}

TEST_CASE("RunRanks: one wish to end that comes as several signals leaves the ranks their grace") {
  Workplace place;
  place.options().grace = seconds(60);
  const int first = GENERATE(SIGHUP, SIGTERM);
  const int second = GENERATE(SIGHUP, SIGTERM);
  const pid_t self = ::getpid();
  std::thread user([&] {
    const Clock::time_point deadline = Clock::now() + seconds(30);
    while (ReadFile(place.file("ready")).empty() && Clock::now() < deadline) {
      std::this_thread::sleep_for(milliseconds(5));
    }
    ::kill(self, first);
    std::this_thread::sleep_for(milliseconds(20));
    ::kill(self, second);
  });
  const RunOutcome outcome =
      place.Run({"trap 'sleep 0.3; echo yes > $D/saved; exit 0' TERM HUP; echo yes > $D/ready\n"
                 "while :; do sleep 0.05; done"});
  user.join();
  CHECK(ReadFile(place.file("saved")) == "yes\n");
  CHECK(outcome.signal == first);
  CHECK(outcome.ends[0].end.ok());
}

TEST_CASE("RunRanks: SIGTERM once more after a while kills the ranks") {
  Workplace place;
  place.options().grace = seconds(60);
  const pid_t self = ::getpid();
  std::atomic<bool> has_ended = false;
  std::thread user([&] {
    for (; !has_ended; std::this_thread::sleep_for(milliseconds(300))) {
      if (!ReadFile(place.file("ready")).empty()) ::kill(self, SIGTERM);
    }
  });
  const RunOutcome outcome = place.Run({"trap '' TERM; echo yes > $D/ready; sleep 60; sleep 60"});
  has_ended = true;
  user.join();
  CHECK(outcome.ends[0].end.signal == SIGKILL);
}

TEST_CASE("RunRanks: what a shell has started has the grace time, too, when the shell has ended") {
  Workplace place;
  place.options().grace = seconds(30);
  const int signal = GENERATE(SIGTERM, SIGINT);
  const pid_t self = ::getpid();
  std::thread user([&] {
    const Clock::time_point deadline = Clock::now() + seconds(30);
    while (ReadFile(place.file("ready")).empty() && Clock::now() < deadline) {
      std::this_thread::sleep_for(milliseconds(5));
    }
    ::kill(self, signal);
  });
  // Output that nobody relays says nothing of who is left. A shell's background jobs ignore SIGINT.
  place.Run({R"((trap 'sleep 0.3; echo yes > $D/saved; exit' TERM
                  echo yes > $D/ready
                  while :; do sleep 0.05; done) > /dev/null 2>&1 &
                 wait)"});
  user.join();
  CHECK(ReadFile(place.file("saved")) == "yes\n");
}

TEST_CASE("RunRanks: the time limit holds, too, if nobody reads the output") {
  Workplace place;
  auto [reader, writer] = GENERATE(false, true) ? MakeTerminal() : MakePipe();
  place.options().standard_output = writer.get();
  place.options().time_limit = Clock::now() + milliseconds(200);
  const Clock::time_point start = Clock::now();
  const RunOutcome outcome = place.Run({"exec yes", "echo $$ > $D/pid; exec sleep 60"});
  CHECK(Clock::now() - start < seconds(10));
  CHECK(outcome.cause == RunOutcome::Cause::kTimeLimit);
  CHECK(IsGone(place.file("pid")));
}

TEST_CASE("RunRanks: a signal that comes while nobody reads the output is told as that") {
  Workplace place;
  auto [reader, writer] = GENERATE(false, true) ? MakeTerminal() : MakePipe();
  place.options().standard_output = writer.get();
  const pid_t self = ::getpid();
  std::thread user([&] {
    std::this_thread::sleep_for(milliseconds(500));
    ::kill(self, SIGINT);
  });
  const RunOutcome outcome = place.Run({"exec yes"});
  user.join();
  CHECK(outcome.cause == RunOutcome::Cause::kSignal);
  CHECK(outcome.signal == SIGINT);
}

TEST_CASE("RunRanks: a program that does not exist is an error that names it") {
  Workplace place;
  const absl::StatusOr<RunOutcome> outcome =
      RunRanks({{0, {"/no/such/program"}, {}}, {1, {"/no/such/program"}, {}}}, place.options());
  REQUIRE_FALSE(outcome.ok());
  CHECK(outcome.status().code() == absl::StatusCode::kNotFound);
  CHECK_THAT(std::string(outcome.status().message()), Contains("/no/such/program"));
}

TEST_CASE("RunRanks: a reader of the output, or of the errors, that goes ends the run") {
  Workplace place;
  const bool errors = GENERATE(false, true);
  auto [reader, writer] = MakePipe();
  reader.Reset();
  (errors ? place.options().standard_error : place.options().standard_output) = writer.get();
  const RunOutcome outcome = place.Run({errors ? "echo a >&2; sleep 60" : "echo a; sleep 60"});
  CHECK(outcome.cause == RunOutcome::Cause::kOutputGone);
}

}  // namespace ringd::cli
