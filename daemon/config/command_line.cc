#include "daemon/config/command_line.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/config/help_text.h"
#include "daemon/config/setting_table.h"

namespace ringd {
namespace {

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
  app.set_help_flag();
  bool help = false, version = false, check = false, print = false;
  app.add_flag("-h,--help", help);
  app.add_flag("--version", version);
  app.add_flag("--check-config", check);
  app.add_flag("--print-config", print);
  app.add_option("--config", line.config_file);
  app.add_option("--probe-gpus", line.probed)->check(CLI::IsMember({"cuda", "nccl"}));

  const std::span<const Setting> settings = AllSettings();
  std::vector<std::string> texts(settings.size());
  std::vector<CLI::Option*> options;
  for (std::size_t i = 0; i < settings.size(); ++i) {
    options.push_back(app.add_option(FlagOf(settings[i]), texts[i]));
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
  line.help = HelpText();
  if (!line.probed.empty()) line.action = CommandLineAction::kProbeGpus;
  if (print) line.action = CommandLineAction::kPrintConfig;
  if (check) line.action = CommandLineAction::kCheckConfig;
  if (version) line.action = CommandLineAction::kVersion;
  if (help) line.action = CommandLineAction::kHelp;
  return line;
}

}  // namespace ringd
