#include "client/core/attach/program_name.h"

#include <errno.h>

#include <cstddef>
#include <fstream>
#include <optional>
#include <string_view>
#include <vector>

namespace ringd::client {
namespace {

constexpr std::size_t kMaxNameBytes = 64;
// What names the program stands before the arguments that are its own.
constexpr std::size_t kMaxCommandLineBytes = 16 * 1024;
// Python's options that take a value, in the same argument or in the next one. -c and -m end the
// options.
constexpr std::string_view kOptionsWithValue = "WXQ";
constexpr std::string_view kLongOptionWithValue = "--check-hash-based-pycs";

std::string_view BaseName(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return path.substr(path.find_last_of('/') + 1);  // npos + 1 is 0
}

std::string Printable(std::string_view name) {
  std::string text(name.substr(0, kMaxNameBytes));
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

bool IsPython(std::string_view program) {
  return program.starts_with("python") || program.starts_with("pypy");
}

// What a Python runs: the script or module; nothing if that has no name (-c, standard input).
std::optional<std::string_view> ScriptOf(std::span<const std::string> arguments) {
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "-") return std::nullopt;
    if (argument == "--") {
      if (++i == arguments.size()) return std::nullopt;
      return BaseName(arguments[i]);
    }
    if (!argument.starts_with('-')) return BaseName(argument);
    if (argument.starts_with("--")) {
      if (argument == kLongOptionWithValue) ++i;
      continue;
    }
    for (std::size_t letter = 1; letter < argument.size(); ++letter) {
      const bool value_follows = letter + 1 == argument.size();
      if (argument[letter] == 'c') return std::nullopt;
      if (argument[letter] == 'm') {
        if (!value_follows) return argument.substr(letter + 1);
        if (++i == arguments.size()) return std::nullopt;
        return arguments[i];
      }
      if (kOptionsWithValue.find(argument[letter]) == std::string_view::npos) continue;
      if (value_follows) ++i;
      break;
    }
  }
  return std::nullopt;
}

}  // namespace

std::string ProgramName(std::span<const std::string> arguments) {
  if (arguments.empty()) return {};
  std::string_view program = BaseName(arguments[0]);
  if (IsPython(program)) {
    const std::optional<std::string_view> script = ScriptOf(arguments);
    // A folder that is run, "." or "/", says nothing.
    if (script.has_value() && script->find_first_not_of('.') != std::string_view::npos) {
      return Printable(*script);
    }
  }
  // A process may have put a whole sentence into the place of its name.
  return Printable(program.substr(0, program.find(' ')));
}

std::string OwnProgramName() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string line(kMaxCommandLineBytes, '\0');
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<std::size_t>(file.gcount()));
  std::vector<std::string> arguments;
  for (std::size_t begin = 0; begin < line.size();) {
    const std::size_t end = line.find('\0', begin);
    arguments.push_back(line.substr(begin, end - begin));
    if (end == std::string::npos) break;
    begin = end + 1;
  }
  std::string name = ProgramName(arguments);
  return name.empty() ? ProgramName(std::vector<std::string>{program_invocation_short_name}) : name;
}

}  // namespace ringd::client
