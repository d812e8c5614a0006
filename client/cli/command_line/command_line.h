// What was asked for on ringctl's command line.
#ifndef RINGD_CLIENT_CLI_COMMAND_LINE_COMMAND_LINE_H_
#define RINGD_CLIENT_CLI_COMMAND_LINE_COMMAND_LINE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/command_line/completion.h"
#include "client/cli/query/drain_command.h"
#include "client/cli/query/query_command.h"
#include "client/cli/run/run_command.h"
#include "client/cli/trace/trace_command.h"

namespace ringd::cli {

struct CommandLine {
  enum class Action : std::uint8_t { kHelp, kQuery, kDrain, kRun, kTrace, kVersion, kCompletion };

  Action action = Action::kHelp;
  std::string help;                        // kHelp
  QueryOptions query;                      // kQuery, and kVersion's socket and json
  DrainOptions drain;                      // kDrain
  RunOptions run;                          // kRun
  TraceOptions trace;                      // kTrace
  std::string shell;                       // kCompletion
  std::vector<CompletedCommand> commands;  // kCompletion: what there is to complete
};

// `arguments` without the program's name.
//   kInvalidArgument: says what is wrong and where help is.
absl::StatusOr<CommandLine> ParseCommandLine(std::span<const char* const> arguments);

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_COMMAND_LINE_COMMAND_LINE_H_
