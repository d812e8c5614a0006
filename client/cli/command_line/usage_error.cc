#include "client/cli/command_line/usage_error.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "client/cli/views/suggestion.h"

namespace ringd::cli {
namespace {

// "--ranks" and the like, of a command or of ringctl itself.
std::vector<std::string> LongOptions(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      names.push_back(absl::StrCat("--", name));
    }
  }
  return names;
}

// "; did you mean 'status'?", or nothing.
std::string DidYouMean(absl::string_view typed, std::span<const std::string> known) {
  const std::string meant = Suggestion(typed, known);
  return meant.empty() ? "" : absl::StrCat("; did you mean ", meant, "?");
}

std::string HelpOf(const CLI::App* command) {
  return command == nullptr ? "ringctl --help"
                            : absl::StrCat("ringctl ", command->get_name(), " --help");
}

// The command that is given first, or null.
const CLI::App* FindCommand(const CLI::App& app, std::span<const std::string> arguments) {
  const auto all = app.get_subcommands([](const CLI::App*) { return true; });
  const auto named = std::find_if(all.begin(), all.end(), [&](const CLI::App* command) {
    return !arguments.empty() && command->get_name() == arguments.front();
  });
  return named == all.end() ? nullptr : *named;
}

}  // namespace

std::string UnknownOption(const CLI::App& command, absl::string_view typed) {
  const absl::string_view name = typed.substr(0, typed.find('='));
  return absl::StrCat(command.get_name(), " has no option ", name,
                      DidYouMean(name, LongOptions(command)), "; see ", HelpOf(&command));
}

std::string HelpOf(const CLI::App& app, std::span<const std::string> arguments) {
  return HelpOf(FindCommand(app, arguments));
}

std::optional<std::string> ExplainUnknownWord(const CLI::App& app,
                                              std::span<const std::string> arguments) {
  if (arguments.empty()) return {};
  const absl::string_view first = arguments.front();
  const CLI::App* const named = FindCommand(app, arguments);
  if (named == nullptr) {
    if (absl::StartsWith(first, "-")) {
      return absl::StrCat("a command is missing beside ", absl::StrJoin(arguments, " "),
                          "; see ringctl --help");
    }
    std::vector<std::string> names;
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
      names.push_back(command->get_name());
    }
    return absl::StrCat("there is no command ", first, DidYouMean(first, names),
                        "; see ringctl --help");
  }
  for (const absl::string_view argument : arguments.subspan(1)) {
    const std::string name(argument.substr(0, argument.find('=')));
    if (absl::StartsWith(name, "-") && named->get_option_no_throw(name) == nullptr) {
      return UnknownOption(*named, argument);
    }
  }
  return {};
}

}  // namespace ringd::cli
