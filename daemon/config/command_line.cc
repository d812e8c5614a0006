#include "daemon/config/command_line.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/config/config_file.h"
#include "daemon/config/setting_table.h"

namespace ringd {
namespace {

constexpr char kFooter[] = R"(
Settings come from their defaults, the configuration file, the environment and the flags; the later
ones win. Exit codes: 0 ended in order, 1 failed, 2 wrong usage or configuration.)";

std::string OptionHelp(const Setting& setting) {
  return absl::StrCat(setting.help,
                      setting.job_wide ? "; that of the ringd on rank 0's node counts" : "", "\n[",
                      AllowedValues(setting), "; default ", FormatSetting(setting, Config{}), "; ",
                      VariableOf(setting), "]");
}

// The flag that an unknown argument was probably meant to be.
std::string Suggestion(const std::vector<std::string>& unknown) {
  for (const std::string& argument : unknown) {
    if (!absl::StartsWith(argument, "--")) continue;
    const absl::string_view name = absl::string_view(argument).substr(2);
    const Setting* nearest = SuggestSetting(name.substr(0, name.find('=')));
    if (nearest != nullptr) return absl::StrCat("; did you mean ", FlagOf(*nearest), "?");
  }
  return "; see ringd --help";
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(std::span<const char* const> arguments) {
  CommandLine line;
  CLI::App app("ringd: reduces the gradients of this node's training processes", "ringd");
  app.footer(kFooter);
  app.get_formatter()->column_width(34);
  app.set_help_flag();
  bool help = false, version = false, check = false, print = false;
  app.add_flag("-h,--help", help, "print this");
  app.add_flag("--version", version, "print the version");
  app.add_flag("--check-config", check, "say whether the configuration is good, on this machine");
  app.add_flag("--print-config", print, "print all settings, and where each comes from");
  app.add_option("--config", line.config_file,
                 absl::StrCat("configuration file [default ", kDefaultConfigFile,
                              " if there is one; RINGD_CONFIG]"));

  const std::span<const Setting> settings = AllSettings();
  std::vector<std::string> texts(settings.size());
  std::vector<CLI::Option*> options;
  for (std::size_t i = 0; i < settings.size(); ++i) {
    options.push_back(
        app.add_option(FlagOf(settings[i]), texts[i], OptionHelp(settings[i]))->group("Settings"));
    options.back()->type_name("");
  }

  // CLI11 reports by exception; none leaves this function. It wants the arguments last first.
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ExtrasError&) {
    return absl::InvalidArgumentError(absl::StrCat(
        "unknown argument ", absl::StrJoin(app.remaining(), " "), Suggestion(app.remaining())));
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(error.what());
  }
  for (std::size_t i = 0; i < settings.size(); ++i) {
    if (options[i]->count() == 0) continue;
    line.settings.push_back(
        {std::string(settings[i].key), texts[i], absl::StrCat("flag ", FlagOf(settings[i]))});
  }
  line.help = app.help();
  if (print) line.action = CommandLineAction::kPrintConfig;
  if (check) line.action = CommandLineAction::kCheckConfig;
  if (version) line.action = CommandLineAction::kVersion;
  if (help) line.action = CommandLineAction::kHelp;
  return line;
}

}  // namespace ringd
