#include "daemon/config/help_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "daemon/config/config_file.h"
#include "daemon/config/setting_table.h"

namespace ringd {
namespace {

constexpr std::size_t kWidth = 80;
constexpr std::size_t kIndent = 6;

constexpr char kFooter[] =
    "Settings come from their defaults, the configuration file, the environment and the flags; the "
    "later ones win. SIGHUP reads them again: those marked with * are taken over, others need a "
    "restart. Exit codes: 0 ended in order, 1 failed, 2 wrong usage or configuration.";

// The words of `text` in lines that begin with `indent` spaces.
std::string Paragraph(absl::string_view text, std::size_t indent) {
  std::string out;
  std::size_t column = 0;
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    if (column > 0 && column + 1 + word.size() > kWidth) {
      out += '\n';
      column = 0;
    }
    if (column == 0) {
      out.append(indent, ' ');
      column = indent;
    } else {
      out += ' ';
      ++column;
    }
    absl::StrAppend(&out, word);
    column += word.size();
  }
  return out + "\n";
}

std::string Option(absl::string_view flag, absl::string_view text) {
  return absl::StrCat("  ", flag, "\n", Paragraph(text, kIndent));
}

std::string Describe(const Setting& setting) {
  return absl::StrCat(
      Option(absl::StrCat(FlagOf(setting), setting.reloaded ? " *" : ""),
             absl::StrCat(setting.help,
                          setting.job_wide ? "; that of the ringd on rank 0's node counts" : "")),
      Paragraph(absl::StrCat("[", AllowedValues(setting), "; default ",
                             FormatSetting(setting, Config{}), "; ", VariableOf(setting), "]"),
                kIndent));
}

}  // namespace

std::string HelpText() {
  std::string text = absl::StrCat(
      "ringd: reduces the gradients of this node's training processes\n"
      "Usage: ringd [OPTIONS]\n\n"
      "Options:\n",
      Option("-h, --help", "print this"), Option("--version", "print the version"),
      Option(
          "--check-config",
          "say whether ringd would start with the configuration, on this machine and as this user"),
      Option("--print-config", "print all settings, and where each comes from"),
      Option("--config FILE", absl::StrCat("configuration file [default ", kDefaultConfigFile,
                                           " if there is one; RINGD_CONFIG]")),
      Option("--probe-gpus cuda|nccl",
             "what ringd runs to look for GPUs (ringctl gpus): open the library of --cuda-library "
             "or --nccl-library, print lines of JSON, and end; no other setting counts"),
      "\nSettings:\n");
  for (const Setting& setting : AllSettings()) absl::StrAppend(&text, Describe(setting));
  return absl::StrCat(text, "\n", Paragraph(kFooter, 0));
}

}  // namespace ringd
