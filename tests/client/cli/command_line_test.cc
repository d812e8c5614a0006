#include "client/cli/command_line/command_line.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace ringd::cli {
namespace {

using Action = CommandLine::Action;
using Catch::Matchers::Contains;

absl::StatusOr<CommandLine> Parse(const std::vector<const char*>& arguments) {
  return ParseCommandLine(arguments);
}

std::string Problem(const std::vector<const char*>& arguments) {
  const absl::StatusOr<CommandLine> line = Parse(arguments);
  REQUIRE_FALSE(line.ok());
  CHECK(line.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(line.status().message());
}

}  // namespace

TEST_CASE("ringctl's command line: queries with their options") {
  const absl::StatusOr<CommandLine> line =
      Parse({"queues", "--json", "--socket", "/tmp/s", "--job", "j", "--watch", "0.5"});
  REQUIRE(line.ok());
  CHECK(line->action == Action::kQuery);
  CHECK(line->query.query == Query::kQueues);
  CHECK(line->query.json);
  CHECK(line->query.socket == "/tmp/s");
  CHECK(line->query.job_id == "j");
  CHECK(line->query.watch_seconds == 0.5);
  CHECK(Parse({"comms"})->query.query == Query::kCommunicators);
  CHECK_FALSE(Parse({"comms"})->query.plan);
  CHECK(Parse({"comms", "--plan", "--json"})->query.plan);
  CHECK_FALSE(Parse({"jobs", "--plan"}).ok());
  CHECK(Parse({"jobs"})->query.query == Query::kJobs);
  CHECK(Parse({"status"})->query.query == Query::kStatus);
  CHECK(Parse({"gpus", "--json"})->query.query == Query::kGpus);
  CHECK_FALSE(Parse({"gpus", "--job", "j"}).ok());
}

TEST_CASE("ringctl's command line: drain waits, or is undone") {
  const absl::StatusOr<CommandLine> line = Parse({"drain", "--wait", "1.5", "--json"});
  REQUIRE(line.ok());
  CHECK(line->action == Action::kDrain);
  CHECK(line->drain.wait_seconds == 1.5);
  CHECK(line->drain.json);
  CHECK_FALSE(line->drain.undo);
  CHECK(Parse({"--socket", "/s", "drain", "--undo"})->drain.undo);
  CHECK_FALSE(Parse({"drain", "--undo", "--wait", "1"}).ok());
  CHECK_FALSE(Parse({"drain", "--wait", "0"}).ok());
  CHECK_FALSE(Parse({"drain", "--wait", "1e300"}).ok());
}

TEST_CASE("ringctl's command line: run takes all that follows as the command") {
  const absl::StatusOr<CommandLine> line =
      Parse({"run", "-n", "4", "--nodes", "2", "--no-prefix", "--state-dir", "learned", "--",
             "python", "train.py", "--json", "-n", "--", "x"});
  REQUIRE(line.ok());
  CHECK(line->action == Action::kRun);
  CHECK(line->run.ranks_per_node == 4);
  CHECK(line->run.nodes == 2);
  CHECK_FALSE(line->run.prefix);
  CHECK(line->run.state_folder == std::filesystem::current_path() / "learned");
  CHECK(line->run.command ==
        std::vector<std::string>{"python", "train.py", "--json", "-n", "--", "x"});
  CHECK(Parse({"run", "--state-dir", "/learned", "true"})->run.state_folder == "/learned");
  const absl::StatusOr<CommandLine> bare = Parse({"run", "-n", "2", "python", "x.py", "--lr", "1"});
  REQUIRE(bare.ok());
  CHECK(bare->run.ranks_per_node == 2);
  CHECK(bare->run.command == std::vector<std::string>{"python", "x.py", "--lr", "1"});
}

TEST_CASE("ringctl's command line: no time of run is longer than a clock can tell") {
  for (const char* option : {"--timeout", "--grace", "--start-timeout"}) {
    CAPTURE(option);
    CHECK(Parse({"run", option, "86400", "--", "true"}).ok());
    CHECK_FALSE(Parse({"run", option, "9999999999", "--", "true"}).ok());
  }
  CHECK(Parse({"run", "--grace", "0", "--", "true"}).ok());
  CHECK_FALSE(Parse({"run", "--timeout", "0", "--", "true"}).ok());
}

TEST_CASE("ringctl's command line: options may stand before every command as well as behind it") {
  // What a command needs besides.
  const std::map<std::string, std::vector<const char*>> needed = {
      {"trace", {"--out", "f"}}, {"run", {"true"}}, {"completion", {"bash"}}};
  const std::map<std::string, const char*> values = {
      {"--watch", "2"}, {"--seconds", "2"}, {"--weight", "2"},        {"--nodes", "2"},
      {"-n", "2"},      {"--ranks", "2"},   {"--start-timeout", "2"}, {"--timeout", "2"},
      {"--grace", "2"}, {"--wait", "2"}};
  int tried = 0;
  const absl::StatusOr<CommandLine> all = Parse({"completion", "bash"});
  REQUIRE(all.ok());
  for (const CompletedCommand& command : all->commands) {
    for (const CompletedOption& option : command.options) {
      if (option.name == "--help" || option.name == "-h") continue;
      std::vector<const char*> words = {option.name.c_str()};
      if (option.value != CompletedOption::Value::kNone) {
        const auto value = values.find(option.name);
        words.push_back(value == values.end() ? "/s" : value->second);
      }
      std::vector<const char*> before = words;
      before.push_back(command.name.c_str());
      std::vector<const char*> behind = {command.name.c_str()};
      behind.insert(behind.end(), words.begin(), words.end());
      if (const auto more = needed.find(command.name);
          more != needed.end() && option.name != "--out") {
        before.insert(before.end(), more->second.begin(), more->second.end());
        behind.insert(behind.end(), more->second.begin(), more->second.end());
      }
      CAPTURE(command.name, option.name);
      const absl::StatusOr<CommandLine> first = Parse(before);
      const absl::StatusOr<CommandLine> second = Parse(behind);
      REQUIRE(second.ok());
      INFO(first.status().message());
      REQUIRE(first.ok());
      CHECK(first->action == second->action);
      CHECK(first->query.socket == second->query.socket);
      CHECK(first->query.json == second->query.json);
      CHECK(first->query.watch_seconds == second->query.watch_seconds);
      CHECK(first->query.job_id == second->query.job_id);
      CHECK(first->trace.socket == second->trace.socket);
      CHECK(first->trace.out == second->trace.out);
      CHECK(first->run.socket == second->run.socket);
      CHECK(first->run.ranks_per_node == second->run.ranks_per_node);
      CHECK(first->run.command == second->run.command);
      ++tried;
    }
  }
  CHECK(tried > 30);
  CHECK(Parse({"--socket=/s", "--json", "jobs", "--all"})->query.socket == "/s");
  CHECK(Parse({"--socket", "/s", "--version"})->action == Action::kVersion);
  CHECK(Parse({"--socket", "/s", "--version"})->query.socket == "/s");
  CHECK_THAT(Problem({"--plan", "jobs"}), Contains("jobs has no option --plan"));
  CHECK_THAT(Problem({"--jsn", "jobs"}), Contains("did you mean --json?"));
  CHECK_THAT(Problem({"--socket", "/s"}), !Contains("/s --socket"));
}

TEST_CASE("ringctl's command line: mistakes are named") {
  CHECK_THAT(Problem({}), Contains("a command is missing"));
  CHECK_THAT(Problem({"frobnicate"}), Contains("frobnicate"));
  CHECK_THAT(Problem({"jobs", "--jsn"}), Contains("--jsn"));
  CHECK_THAT(Problem({"run", "-n", "4"}), Contains("run needs a command"));
  CHECK_THAT(Problem({"run", "-n", "0", "--", "true"}), Contains("0"));
  CHECK_THAT(Problem({"run", "--rank", "2", "true"}), Contains("--rank"));
  CHECK_THAT(Problem({"run", "--weight", "101", "--", "true"}), Contains("--weight"));
  CHECK_THAT(Problem({"run", "--nodes", "2", "--socket", "/s", "--", "true"}),
             Contains("give one of them"));
  CHECK_THAT(Problem({"jobs", "--watch", "0"}), Contains("--watch"));
}

TEST_CASE("ringctl's command line: what was probably meant is said") {
  CHECK_THAT(Problem({"stauts"}), Contains("no command stauts; did you mean status?"));
  CHECK_THAT(Problem({"que"}), Contains("did you mean queues?"));
  CHECK_THAT(Problem({"Jobs"}), Contains("did you mean jobs?"));
  CHECK_THAT(Problem({"frobnicate"}), !Contains("did you mean"));
  CHECK_THAT(Problem({"jobs", "--jsn"}),
             Contains("jobs has no option --jsn; did you mean --json?"));
  CHECK_THAT(Problem({"run", "--node=2", "true"}),
             Contains("run has no option --node; did you mean --nodes?"));
  CHECK_THAT(Problem({"run", "--frobnicate", "true"}), !Contains("did you mean"));
  CHECK_THAT(Problem({"status", "--socket", "/s", "more"}), Contains("more"));
}

TEST_CASE("ringctl's command line: an error names the help of the command that was given") {
  CHECK_THAT(Problem({"jobs", "--job"}), Contains("; see ringctl jobs --help"));
  CHECK_THAT(Problem({"trace", "--seconds", "x"}), Contains("; see ringctl trace --help"));
  CHECK_THAT(Problem({"status", "more"}), Contains("; see ringctl status --help"));
  CHECK_THAT(Problem({"status", "--", "more"}), Contains("; see ringctl status --help"));
  CHECK_THAT(Problem({"stauts"}), Contains("; see ringctl --help"));
  CHECK_THAT(Problem({}), Contains("; see ringctl --help"));
}

TEST_CASE("ringctl's command line: run understands -np, but leaves the program's alone") {
  for (const std::vector<const char*>& arguments :
       std::vector<std::vector<const char*>>{{"run", "-np", "3", "x", "-np", "5"},
                                             {"run", "--np", "3", "--", "x", "-np", "5"},
                                             {"run", "--no-prefix", "-np=3", "x", "-np", "5"},
                                             {"run", "--job-id", "-np", "-np3", "x", "-np", "5"},
                                             {"run", "--ranks=3", "x", "-np", "5"}}) {
    const absl::StatusOr<CommandLine> line = Parse(arguments);
    CAPTURE(arguments, line.status().message());
    REQUIRE(line.ok());
    CHECK(line->run.ranks_per_node == 3);
    CHECK(line->run.command == std::vector<std::string>{"x", "-np", "5"});
  }
  CHECK_THAT(Problem({"run", "-np", "x"}), Contains("--ranks"));
  CHECK_FALSE(Parse({"jobs", "-np", "3"}).ok());
}

TEST_CASE("ringctl's command line: help is there for all and for each command") {
  CHECK_THAT(Parse({"--help"})->help, Contains("Exit codes") && Contains("queues"));
  CHECK_THAT(Parse({"run", "--help"})->help, Contains("--start-timeout") && Contains("WORLD_SIZE"));
  CHECK(Parse({"--version"})->action == Action::kVersion);
}

TEST_CASE("ringctl trace: needs a file, and standard output for one thing at most") {
  const auto line = Parse({"trace", "--job", "train", "--seconds", "2.5", "--out", "t.json"});
  REQUIRE(line.ok());
  CHECK(line->action == Action::kTrace);
  CHECK(line->trace.job_id == "train");
  CHECK(line->trace.seconds == 2.5);
  CHECK(line->trace.out == "t.json");
  CHECK(Parse({"trace", "--out", "-"})->trace.seconds == 5);
  CHECK_THAT(Problem({"trace", "--job", "train"}), Contains("--out"));
  CHECK_THAT(Problem({"trace", "--out", "-", "--json"}), Contains("standard output"));
  CHECK_THAT(Problem({"trace", "--out", "/dev/stdout", "--json"}), Contains("standard output"));
  CHECK_THAT(Problem({"trace", "--out", "x", "--seconds", "-1"}), Contains("--seconds"));
}

TEST_CASE("completion: every command and option is in every shell's script") {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    INFO(shell);
    const absl::StatusOr<CommandLine> line = Parse({"completion", shell});
    REQUIRE(line.ok());
    CHECK(line->action == Action::kCompletion);
    REQUIRE(line->commands.size() == 10);
    const absl::StatusOr<std::string> script = CompletionScript(line->shell, line->commands);
    REQUIRE(script.ok());
    for (const CompletedCommand& command : line->commands) {
      CHECK_THAT(*script, Contains(command.name));
      for (const CompletedOption& option : command.options) {
        CHECK_THAT(*script, Contains(option.name.substr(option.name.find_first_not_of('-'))));
      }
    }
  }
  CHECK_FALSE(CompletionScript("tcsh", {}).ok());
}

TEST_CASE("completion: bash completes commands and options") {
  const absl::StatusOr<CommandLine> line = Parse({"completion", "bash"});
  REQUIRE(line.ok());
  char path[] = "/tmp/ringctl-XXXXXX";
  const int fd = ::mkstemp(path);
  REQUIRE(fd >= 0);
  const std::string script = *CompletionScript("bash", line->commands) + R"(
    complete_words() {
      COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
      _ringctl
      echo "${COMPREPLY[*]}"
    }
    [[ $(complete_words ringctl qu) == queues ]] || exit 1
    [[ $(complete_words ringctl run --no) == "--nodes --no-prefix" ]] || exit 2
    [[ $(complete_words ringctl jobs --js) == --json ]] || exit 3
    [[ $(complete_words ringctl completion b) == bash ]] || exit 4
    [[ -z $(complete_words ringctl jobs --job '') ]] || exit 5
    [[ $(complete_words ringctl --socket /s jobs --js) == --json ]] || exit 6
  )";
  REQUIRE(::write(fd, script.data(), script.size()) == static_cast<ssize_t>(script.size()));
  ::close(fd);
  CHECK(std::system((std::string("bash ") + path).c_str()) == 0);
  ::unlink(path);
}

}  // namespace ringd::cli
