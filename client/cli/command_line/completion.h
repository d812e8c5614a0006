// Scripts that teach shells to complete ringctl's command line.
#ifndef RINGD_CLIENT_CLI_COMMAND_LINE_COMPLETION_H_
#define RINGD_CLIENT_CLI_COMMAND_LINE_COMPLETION_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ringd::cli {

struct CompletedOption {
  std::string name;  // with its dashes
  std::string help;
  enum class Value { kNone, kAny, kFile, kFolder } value = Value::kNone;
};

struct CompletedCommand {
  std::string name;
  std::string help;
  std::vector<CompletedOption> options;
  std::vector<std::string> words;  // what may follow besides options
  bool runs_program = false;       // what follows is another command line
};

// kInvalidArgument: not bash, zsh or fish.
absl::StatusOr<std::string> CompletionScript(absl::string_view shell,
                                             const std::vector<CompletedCommand>& commands);

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_COMMAND_LINE_COMPLETION_H_
