// ringctl: the command line of ringd.
#include <cstdio>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "client/cli/command_line/command_line.h"
#include "client/cli/command_line/completion.h"
#include "client/cli/processes/inherited.h"
#include "client/cli/query/drain_command.h"
#include "client/cli/query/exit_code.h"
#include "client/cli/query/query_command.h"
#include "client/cli/query/standard_output.h"
#include "client/cli/query/version_command.h"
#include "client/cli/run/run_command.h"
#include "client/cli/trace/trace_command.h"

namespace ringd::cli {
namespace {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "ringctl: %s\n", std::string(status.message()).c_str());
  return kUsage;
}

int Main(std::span<const char* const> arguments) {
  const absl::StatusOr<CommandLine> line = ParseCommandLine(arguments);
  if (!line.ok()) return Fail(line.status());
  switch (line->action) {
    case CommandLine::Action::kHelp:
      return Print(line->help);
    case CommandLine::Action::kQuery:
      return QueryCommand(line->query);
    case CommandLine::Action::kDrain:
      return DrainCommand(line->drain);
    case CommandLine::Action::kRun:
      return RunCommand(line->run);
    case CommandLine::Action::kTrace:
      return TraceCommand(line->trace);
    case CommandLine::Action::kVersion:
      return VersionCommand(line->query.socket, line->query.json);
    case CommandLine::Action::kCompletion: {
      const absl::StatusOr<std::string> script = CompletionScript(line->shell, line->commands);
      if (!script.ok()) return Fail(script.status());
      return Print(*script);
    }
  }
  return kFailed;
}

}  // namespace
}  // namespace ringd::cli

int main(int argc, char** argv) {
  ringd::cli::FillStandardStreams();
  return ringd::cli::Main(
      std::span<const char* const>(argv, static_cast<std::size_t>(argc)).subspan(1));
}
