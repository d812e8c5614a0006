// What a command line that can't be taken is answered with.
#ifndef RINGD_CLIENT_CLI_COMMAND_LINE_USAGE_ERROR_H_
#define RINGD_CLIENT_CLI_COMMAND_LINE_USAGE_ERROR_H_

#include <CLI/App.hpp>
#include <optional>
#include <span>
#include <string>

#include "absl/strings/string_view.h"

namespace ringd::cli {

// How to ask for help: "ringctl jobs --help" if `arguments` begin with that command, else
// "ringctl --help".
std::string HelpOf(const CLI::App& app, std::span<const std::string> arguments);

// "jobs has no option --jsn; ...", of what was typed as one.
std::string UnknownOption(const CLI::App& command, absl::string_view typed);

// What is wrong with a word that nobody takes: no command, or an option that the command has not.
// Nothing: neither is it.
std::optional<std::string> ExplainUnknownWord(const CLI::App& app,
                                              std::span<const std::string> arguments);

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_COMMAND_LINE_USAGE_ERROR_H_
