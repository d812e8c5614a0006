#include "client/cli/command_line/command_line.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/cli/command_line/usage_error.h"
#include "client/cli/trace/new_file.h"
#include "proto/types/job_weight.h"

namespace ringd::cli {
namespace {

using Value = CompletedOption::Value;

constexpr char kFooter[] = R"(
Options stand before or behind the command.
ringctl asks the ringd at --socket, else RINGD_SOCKET, else /run/ringd/ringd.sock.
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no ringd answers; run: 128 + N after signal N.
On a terminal states are coloured, unless NO_COLOR is set.)";

constexpr char kRunFooter[] = R"(
The command follows the options, best behind --, with all its own options.
Each rank finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR, MASTER_PORT
and RINGD_* in its environment, and OMP_NUM_THREADS=1 and PYTHONUNBUFFERED=1 unless these are set.
Rank 0 reads ringctl's input if that is no terminal. The first rank that fails ends the others and
is named; ringctl then exits with 1, as after --timeout.
  ringctl run -n 4 -- python train.py             on this node, through its ringd or a private one
  ringctl run --nodes 2 -n 2 -- python train.py   on two pretended nodes of two ranks)";

constexpr char kTraceFooter[] = R"(
Writes the times of the job's operations as Chrome trace events: submitted, agreed, sent, received,
completed, waited for, on every rank and every node by one clock. It needs no preparation: ringd and
the ranks note them all the time. What began before and is still under way is in it. Ctrl-C, or the
job's end, ends it early, with what there is. Of communicators on one node, operations of 32 bytes
or less are not noted.
Open the file at ui.perfetto.dev or chrome://tracing.
  ringctl trace --job train --seconds 10 --out train.json)";

constexpr char kDrainFooter[] = R"(
From now on this node takes no new jobs: their ranks hear that it drains, and health probes that it
does not serve. Jobs that run go on; one that still gathers ranks here fails. It lasts until --undo
or a restart. For root and ringd's own user. (systemctl stop ringd drains, too, and then ends it.)
  ringctl drain --wait 3600 && systemctl restart ringd)";

constexpr double kLongestSeconds = 31'536'000;  // a year

constexpr char kSocketHelp[] = "ringd's Unix socket [RINGD_SOCKET, /run/ringd/ringd.sock]";

void AddQueryOptions(CLI::App& command, QueryOptions& options, bool list) {
  command.add_option("--socket", options.socket, kSocketHelp)->type_name("PATH");
  command.add_flag("--json", options.json, "print the reply as JSON (proto/rpc/admin.proto)");
  command.add_option("--watch", options.watch_seconds, "again and again, every so many seconds")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.1, 86400.0));
  if (list) {
    command.add_option("--job", options.job_id, "of this job only")->type_name("ID");
    command.add_flag("--wide", options.wide, "all columns and whole names on a terminal, too");
  }
}

CLI::App* AddRun(CLI::App& app, RunOptions& options) {
  CLI::App* run = app.add_subcommand("run", "start the ranks of a job on this machine");
  run->add_option("-n,--ranks", options.ranks_per_node, "ranks on each node; -np too [1]")
      ->type_name("N")
      ->check(CLI::Range(1, 4096));
  run->add_option("--nodes", options.nodes, "start that many private ringds, each a pretended node")
      ->type_name("M")
      ->check(CLI::Range(1, 64));
  run->add_option("--job-id", options.job_id, "the job's name [made up]")->type_name("ID");
  run->add_option("--timeout", options.timeout_seconds, "end the run after this long [never]")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.001, kLongestSeconds));
  run->add_option("--start-timeout", options.start_timeout_seconds,
                  "how long ranks wait for each other at the start [ringd's setting]")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.001, kLongestSeconds));
  run->add_option("--weight", options.weight,
                  "the job's share of lines that other jobs want too [RINGD_WEIGHT, 1]")
      ->type_name("N")
      ->check(CLI::Range(kMinJobWeight, kMaxJobWeight));
  run->add_option(
         "--grace", options.grace_seconds,
         "what the other ranks have between a failure and SIGTERM, and then to SIGKILL [5]")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.0, kLongestSeconds));
  run->add_option("--socket", options.socket,
                  "the ringd to use [RINGD_SOCKET or /run/ringd/ringd.sock if one there takes "
                  "new jobs, else a private one]")
      ->type_name("PATH");
  run->add_option("--state-dir", options.state_folder,
                  "where private ringds keep what they learn, for the next run [nowhere]")
      ->type_name("DIR");
  run->add_option("--log-dir", options.log_folder,
                  "also write each rank's output here, to rank-N.out and rank-N.err, and private "
                  "ringds' logs, to ringd-N.log")
      ->type_name("DIR");
  run->add_flag_callback(
      "--no-prefix", [&options] { options.prefix = false; }, "print lines without the rank");
  run->add_option("--ringd", options.ringd_binary,
                  "the program for private ringds [RINGD_BINARY, beside ringctl, PATH]")
      ->type_name("PATH");
  run->add_flag("--keep", options.keep, "leave the private ringds' folder with their logs");
  run->prefix_command();
  run->footer(kRunFooter);
  return run;
}

CLI::App* AddDrain(CLI::App& app, DrainOptions& options) {
  CLI::App* drain =
      app.add_subcommand("drain", "take no new jobs on this node, or take them again");
  CLI::Option* undo = drain->add_flag("--undo", options.undo, "take new jobs again");
  drain
      ->add_option("--wait", options.wait_seconds,
                   "until the last trainer has gone; 1 if it has not after so long")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.001, kLongestSeconds))
      ->excludes(undo);
  drain->add_option("--socket", options.socket, kSocketHelp)->type_name("PATH");
  drain->add_flag("--json", options.json, "print the reply as JSON (proto/rpc/admin.proto)");
  drain->footer(kDrainFooter);
  return drain;
}

CLI::App* AddTrace(CLI::App& app, TraceOptions& options) {
  CLI::App* trace =
      app.add_subcommand("trace", "when a job's operations do what, on all its nodes, as a file");
  trace->add_option("--job", options.job_id, "of this job [the only one]")->type_name("ID");
  trace->add_option("--seconds", options.seconds, "for so long [5]")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.0, 3600.0));
  trace->add_option("--out", options.out, "the file; - for standard output")
      ->type_name("PATH")
      ->required();
  trace->add_option("--socket", options.socket, kSocketHelp)->type_name("PATH");
  trace->add_flag("--json", options.json, "print what was written as JSON, the warnings too");
  trace->footer(kTraceFooter);
  return trace;
}

// What completion needs to know about the commands: the parser's own description of them.
std::vector<CompletedCommand> DescribeCommands(const CLI::App& app) {
  std::vector<CompletedCommand> commands;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    CompletedCommand described{command->get_name(), command->get_description(), {}, {}, false};
    for (const CLI::Option* option : command->get_options()) {
      if (option->get_positional()) continue;
      Value value = Value::kNone;
      if (option->get_items_expected_max() > 0) {
        const std::string type = option->get_type_name();
        value = absl::StartsWith(type, "PATH")  ? Value::kFile
                : absl::StartsWith(type, "DIR") ? Value::kFolder
                                                : Value::kAny;
      }
      for (const std::string& name : option->get_snames()) {
        described.options.push_back({absl::StrCat("-", name), option->get_description(), value});
      }
      for (const std::string& name : option->get_lnames()) {
        described.options.push_back({absl::StrCat("--", name), option->get_description(), value});
      }
    }
    described.runs_program = described.name == "run";
    if (described.name == "completion") described.words = {"bash", "zsh", "fish"};
    commands.push_back(std::move(described));
  }
  return commands;
}

// `arguments` with the command in front, where options stand before it; as they are without one.
std::vector<std::string> CommandFirst(const CLI::App& app, std::span<const char* const> arguments) {
  std::vector<std::string> words(arguments.begin(), arguments.end());
  const auto all = app.get_subcommands([](const CLI::App*) { return true; });
  const auto takes_value = [&](const std::string& word) {
    return std::any_of(all.begin(), all.end(), [&](const CLI::App* command) {
      const CLI::Option* option = command->get_option_no_throw(word);
      return option != nullptr && option->get_items_expected_max() > 0;
    });
  };
  std::size_t command = 0;
  while (command < words.size() && absl::StartsWith(words[command], "-")) {
    command += takes_value(words[command]) ? 2 : 1;
  }
  const auto front = words.begin();
  if (command < words.size()) {
    std::rotate(front, front + static_cast<std::ptrdiff_t>(command),
                front + static_cast<std::ptrdiff_t>(command) + 1);
  } else if (const auto version = std::find(front, words.end(), "--version");
             version != words.end() && words.size() > 1) {
    *version = "version";
    std::rotate(front, version, version + 1);
  }
  return words;
}

// mpirun and horovodrun say -np where run says -n; it would be the option -n with the value p.
std::vector<std::string> UnderstandRanks(const CLI::App& run, std::vector<std::string> result) {
  if (result.empty() || result.front() != run.get_name()) return result;
  for (std::size_t i = 1; i < result.size() && absl::StartsWith(result[i], "-"); ++i) {
    std::string& word = result[i];
    if (absl::string_view rest = word;
        absl::ConsumePrefix(&rest, "-np") || absl::ConsumePrefix(&rest, "--np")) {
      absl::ConsumePrefix(&rest, "=");
      word = rest.empty() ? "-n" : absl::StrCat("--ranks=", rest);
    }
    const CLI::Option* option = run.get_option_no_throw(word);
    if (option != nullptr && option->get_items_expected_max() > 0) ++i;  // its value
  }
  return result;
}

// `unknown`: what the parser did not know; `behind_dashes`: what follows the first "--".
absl::Status TakeCommand(const CLI::App& run, RunOptions& options, std::vector<std::string> unknown,
                         std::span<const char* const> behind_dashes) {
  std::vector<std::string> rest = std::move(unknown);
  // The dashes were the program's own if it had begun before them.
  if (!rest.empty() && !behind_dashes.empty()) rest.emplace_back("--");
  rest.insert(rest.end(), behind_dashes.begin(), behind_dashes.end());
  if (rest.empty()) {
    return absl::InvalidArgumentError("run needs a command: ringctl run -n 4 -- python train.py");
  }
  // It would go to the program, which is not what was meant.
  if (absl::StartsWith(rest.front(), "-")) {
    return absl::InvalidArgumentError(UnknownOption(run, rest.front()));
  }
  if (options.nodes > 0 && !options.socket.empty()) {
    return absl::InvalidArgumentError(
        "--nodes starts private ringds and --socket names a running one: give one of them");
  }
  options.command = std::move(rest);
  // ringd takes no relative path: it has no working directory that anybody knows.
  if (!options.state_folder.empty()) {
    std::error_code error;
    options.state_folder = std::filesystem::absolute(options.state_folder, error).string();
    if (error) {
      return absl::InvalidArgumentError(
          absl::StrCat("--state-dir: no working directory: ", error.message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(std::span<const char* const> arguments) {
  CommandLine line;
  CLI::App app("ringctl: shows what a ringd does, and runs jobs on it", "ringctl");
  app.footer(kFooter);
  app.require_subcommand(0, 1);
  app.get_formatter()->column_width(28);
  bool version_flag = false;
  app.add_flag("--version", version_flag, "print the version");

  const std::pair<Query, CLI::App*> queries[] = {
      {Query::kStatus, app.add_subcommand("status", "what this node's ringd is and does")},
      {Query::kGpus, app.add_subcommand(
                         "gpus", "this node's GPUs, their driver and NCCL, or why there are none")},
      {Query::kJobs, app.add_subcommand("jobs", "jobs with ranks on this node")},
      {Query::kCommunicators,
       app.add_subcommand("comms", "communicators: members, links, schedule, bytes and rates")},
      {Query::kQueues,
       app.add_subcommand("queues", "per rank, what was submitted, what waits, and for whom")},
  };
  for (const auto& [query, command] : queries) {
    AddQueryOptions(*command, line.query, query != Query::kStatus && query != Query::kGpus);
    if (query == Query::kJobs) {
      command->add_flag("--all", line.query.ended, "also the last ones that have ended");
    }
    if (query == Query::kCommunicators) {
      command->add_flag("--plan", line.query.plan,
                        "the buckets, predicted and measured, and what other plans would cost");
    }
  }
  CLI::App* drain = AddDrain(app, line.drain);
  CLI::App* run = AddRun(app, line.run);
  CLI::App* trace = AddTrace(app, line.trace);
  CLI::App* version =
      app.add_subcommand("version", "versions of ringctl and of the ringd it finds");
  version->add_option("--socket", line.query.socket, kSocketHelp)->type_name("PATH");
  version->add_flag("--json", line.query.json, "print them as JSON");
  CLI::App* completion =
      app.add_subcommand("completion", "print a script that completes ringctl's command line");
  completion->add_option("shell", line.shell, "bash, zsh or fish")->required();

  // The parser would take what is behind "--" apart.
  const auto dashes = std::find_if(arguments.begin(), arguments.end(), [](const char* argument) {
    return absl::string_view(argument) == "--";
  });
  const std::span<const char* const> ours(arguments.begin(), dashes);
  const std::span<const char* const> behind_dashes = dashes == arguments.end()
                                                         ? std::span<const char* const>()
                                                         : arguments.subspan(ours.size() + 1);

  // CLI11 reports by exception; none leaves this function. It wants the arguments last first.
  const std::vector<std::string> in_order = CommandFirst(app, ours);
  try {
    const std::vector<std::string> words = UnderstandRanks(*run, in_order);
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::CallForHelp&) {
    line.help = app.help();  // of the command, if one was given
    return line;
  } catch (const CLI::ExtrasError& error) {
    return absl::InvalidArgumentError(
        ExplainUnknownWord(app, in_order)
            .value_or(absl::StrCat(error.what(), "; see ", HelpOf(app, in_order))));
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(absl::StrCat(error.what(), "; see ", HelpOf(app, in_order)));
  }
  for (const auto& [query, command] : queries) {
    if (!command->parsed()) continue;
    line.action = CommandLine::Action::kQuery;
    line.query.query = query;
  }
  if (drain->parsed()) line.action = CommandLine::Action::kDrain;
  if (trace->parsed()) {
    line.action = CommandLine::Action::kTrace;
    if (line.trace.json && IsStandardOutput(line.trace.out)) {
      return absl::InvalidArgumentError(
          "--json and --out - both want standard output; see ringctl trace --help");
    }
  }
  if (version->parsed() || version_flag) line.action = CommandLine::Action::kVersion;
  if (completion->parsed()) {
    line.action = CommandLine::Action::kCompletion;
    line.commands = DescribeCommands(app);
  }
  if (run->parsed()) {
    line.action = CommandLine::Action::kRun;
    absl::Status status = TakeCommand(*run, line.run, run->remaining(), behind_dashes);
    if (!status.ok()) return status;
  } else if (!behind_dashes.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("not expected: ", behind_dashes.front(), "; see ", HelpOf(app, in_order)));
  }
  if (line.action == CommandLine::Action::kHelp) {
    return absl::InvalidArgumentError("a command is missing; see ringctl --help");
  }
  return line;
}

}  // namespace ringd::cli
