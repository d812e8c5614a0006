#include "client/cli/command_line/completion.h"

#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace ringd::cli {
namespace {

using Value = CompletedOption::Value;
using Commands = std::vector<CompletedCommand>;

// For use between single quotes.
std::string Quoted(absl::string_view text) { return absl::StrReplaceAll(text, {{"'", "'\\''"}}); }

std::string Names(const Commands& commands) {
  return absl::StrJoin(commands, " ", [](std::string* out, const CompletedCommand& command) {
    absl::StrAppend(out, command.name);
  });
}

// All options that take one of such values, each once.
std::set<std::string> OptionsWith(const Commands& commands, const std::set<Value>& values) {
  std::set<std::string> names;
  for (const CompletedCommand& command : commands) {
    for (const CompletedOption& option : command.options) {
      if (values.count(option.value) > 0) names.insert(option.name);
    }
  }
  return names;
}

std::string Bash(const Commands& commands) {
  std::string cases;
  for (const CompletedCommand& command : commands) {
    std::vector<std::string> words = command.words;
    for (const CompletedOption& option : command.options) words.push_back(option.name);
    absl::StrAppend(&cases, "    ", command.name, ") words='", absl::StrJoin(words, " "), "' ;;\n");
  }
  const std::string with_values =
      absl::StrJoin(OptionsWith(commands, {Value::kFile, Value::kFolder, Value::kAny}), "|");
  std::string values;
  for (const auto& [value, action] :
       {std::pair(Value::kFile, "compgen -f"), std::pair(Value::kFolder, "compgen -d")}) {
    const std::string options = absl::StrJoin(OptionsWith(commands, {value}), "|");
    if (options.empty()) continue;
    absl::StrAppend(&values, "    ", options, ") mapfile -t COMPREPLY < <(", action,
                    " -- \"$current\"); return ;;\n");
  }
  if (const std::string options = absl::StrJoin(OptionsWith(commands, {Value::kAny}), "|");
      !options.empty()) {
    absl::StrAppend(&values, "    ", options, ") return ;;\n");
  }
  return absl::StrCat(
      R"(# bash completion of ringctl: source it, or put it into
# /usr/share/bash-completion/completions/ringctl.
_ringctl() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command='' words='' i
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ ${COMP_WORDS[i]} == -- ]]; then
      # What follows is another command line.
      declare -F _command_offset >/dev/null && _command_offset $((i + 1))
      return
    fi
    case ${COMP_WORDS[i-1]} in
      )",
      with_values, R"() [[ -n $command ]] || continue ;;
    esac
    [[ -n $command || ${COMP_WORDS[i]} == -* ]] || command=${COMP_WORDS[i]}
  done
  case $previous in
)",
      values, R"(  esac
  case $command in
    '') words=')",
      Names(commands), R"( --help --version' ;;
)",
      cases, R"(  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -F _ringctl ringctl
)");
}

std::string ZshOption(const CompletedOption& option) {
  std::string help =
      absl::StrReplaceAll(Quoted(option.help), {{"[", "\\["}, {"]", "\\]"}, {":", "\\:"}});
  std::string spec = absl::StrCat("'", option.name, "[", help, "]");
  switch (option.value) {
    case Value::kNone:
      break;
    case Value::kAny:
      absl::StrAppend(&spec, ":value:");
      break;
    case Value::kFile:
      absl::StrAppend(&spec, ":file:_files");
      break;
    case Value::kFolder:
      absl::StrAppend(&spec, ":folder:_files -/");
      break;
  }
  return absl::StrCat(spec, "'");
}

std::string Zsh(const Commands& commands) {
  std::string list;
  std::string cases;
  for (const CompletedCommand& command : commands) {
    absl::StrAppend(&list, "    '", command.name, ":", Quoted(command.help), "'\n");
    absl::StrAppend(&cases, "        ", command.name, ")\n          _arguments");
    for (const CompletedOption& option : command.options) {
      absl::StrAppend(&cases, " \\\n            ", ZshOption(option));
    }
    if (!command.words.empty()) {
      absl::StrAppend(&cases, " \\\n            '1:word:(", absl::StrJoin(command.words, " "),
                      ")'");
    }
    if (command.runs_program) absl::StrAppend(&cases, " \\\n            '*::command:_normal'");
    absl::StrAppend(&cases, " ;;\n");
  }
  return absl::StrCat(R"(#compdef ringctl
# zsh completion of ringctl: put it as _ringctl into a folder of $fpath.
_ringctl() {
  local state line
  local -a commands=(
)",
                      list, R"(  )
  _arguments -C '(-h --help)'{-h,--help}'[explain]' '1:command:->command' '*::argument:->argument'
  case $state in
    command) _describe command commands ;;
    argument)
      case $line[1] in
)",
                      cases, R"(      esac ;;
  esac
}
_ringctl "$@"
)");
}

std::string Fish(const Commands& commands) {
  std::string out = absl::StrCat(
      "# fish completion of ringctl: put it into ~/.config/fish/completions/ringctl.fish.\n"
      "set -l commands ",
      Names(commands), "\ncomplete -c ringctl -f\n");
  for (const CompletedCommand& command : commands) {
    absl::StrAppend(&out,
                    "complete -c ringctl -n \"not __fish_seen_subcommand_from $commands\" -a ",
                    command.name, " -d '", Quoted(command.help), "'\n");
    const std::string condition =
        absl::StrCat("complete -c ringctl -n '__fish_seen_subcommand_from ", command.name, "'");
    for (const CompletedOption& option : command.options) {
      const absl::string_view name = option.name;
      const bool is_long = name.substr(0, 2) == "--";
      absl::StrAppend(&out, condition, is_long ? " -l " : " -s ", name.substr(is_long ? 2 : 1));
      if (option.value == Value::kFile || option.value == Value::kFolder) {
        absl::StrAppend(&out, " -r -F");
      } else if (option.value == Value::kAny) {
        absl::StrAppend(&out, " -x");
      }
      absl::StrAppend(&out, " -d '", Quoted(option.help), "'\n");
    }
    if (!command.words.empty()) {
      absl::StrAppend(&out, condition, " -a '", absl::StrJoin(command.words, " "), "'\n");
    }
    if (command.runs_program) {
      absl::StrAppend(&out, condition, " -a '(__fish_complete_subcommand)'\n");
    }
  }
  return out;
}

}  // namespace

absl::StatusOr<std::string> CompletionScript(absl::string_view shell, const Commands& commands) {
  if (shell == "bash") return Bash(commands);
  if (shell == "zsh") return Zsh(commands);
  if (shell == "fish") return Fish(commands);
  return absl::InvalidArgumentError(
      absl::StrCat("no completion for '", shell, "'; there are bash, zsh and fish"));
}

}  // namespace ringd::cli
