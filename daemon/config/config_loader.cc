#include "daemon/config/config_loader.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "daemon/config/config_file.h"
#include "daemon/config/host_port.h"
#include "daemon/config/quantity.h"
#include "daemon/config/setting_table.h"

namespace ringd {
namespace {

constexpr absl::string_view kPrefix = "RINGD_";
constexpr absl::string_view kFileVariable = "RINGD_CONFIG";

// The settings among the environment. Other variables may share the prefix (the client library's
// do), so an unknown one is no error; one that looks misspelt gets a warning.
WrittenSettings FromVariables(const ConfigEnvironment& environment, std::string& file,
                              std::vector<std::string>& warnings) {
  WrittenSettings settings;
  for (const absl::string_view entry : environment.variables) {
    const std::size_t equals = entry.find('=');
    if (!absl::StartsWith(entry, kPrefix) || equals == absl::string_view::npos) continue;
    const absl::string_view name = entry.substr(0, equals);
    const absl::string_view value = entry.substr(equals + 1);
    const std::string key = absl::AsciiStrToLower(name.substr(kPrefix.size()));
    if (name == kFileVariable) {
      file = std::string(value);
    } else if (FindSetting(key) != nullptr) {
      settings.push_back({key, std::string(value), absl::StrCat("variable ", name)});
    } else if (const Setting* nearest = SuggestSetting(key); nearest != nullptr) {
      warnings.push_back(absl::StrCat("variable ", name, " is no setting; did you mean ",
                                      VariableOf(*nearest), "?"));
    }
  }
  return settings;
}

std::string UnknownKey(const WrittenSetting& written) {
  std::string text = absl::StrCat(written.origin, ": unknown key '", written.key, "'");
  if (const Setting* nearest = SuggestSetting(written.key); nearest != nullptr) {
    return absl::StrCat(text, "; did you mean ", nearest->key, "?");
  }
  return absl::StrCat(
      text, "; allowed: ",
      absl::StrJoin(AllSettings(), ", ", [](std::string* out, const Setting& setting) {
        absl::StrAppend(out, setting.key);
      }));
}

// Where `key` was set, for messages.
std::string OriginOf(const LoadedConfig& loaded, absl::string_view key) {
  const auto found = loaded.origins.find(std::string(key));
  return found == loaded.origins.end() ? absl::StrCat("default of ", key) : found->second;
}

// What no setting shows alone.
void CheckTogether(LoadedConfig& loaded, std::uint64_t memory_bytes,
                   std::vector<std::string>& errors) {
  Config& config = loaded.config;
  if (config.arena_bytes > memory_bytes && memory_bytes != 0) {
    if (!loaded.origins.contains("arena_bytes")) {
      config.arena_bytes = memory_bytes / (1 << 20) * (1 << 20);
    } else {
      errors.push_back(absl::StrCat(
          OriginOf(loaded, "arena_bytes"), ": arena_bytes = ", FormatBytes(config.arena_bytes),
          " is more than this machine's memory; allowed: up to ", memory_bytes >> 20, "MiB"));
    }
  }
  const absl::StatusOr<HostPort> peer = ParseHostPort(config.peer_address);
  if (!config.peer_interface.empty()) {
    if (loaded.origins.contains("peer_address") && peer.ok() && !peer->host.empty()) {
      errors.push_back(absl::StrCat(OriginOf(loaded, "peer_interface"),
                                    ": peer_interface and a host in peer_address (",
                                    OriginOf(loaded, "peer_address"),
                                    ") exclude each other; allowed: one of them, or "
                                    "peer_address = \":",
                                    peer->port, "\" for the port alone"));
    }
  } else if (peer.ok() && peer->host.empty()) {
    errors.push_back(absl::StrCat(OriginOf(loaded, "peer_address"),
                                  ": peer_address has no host; allowed only with peer_interface"));
  }
  for (const auto& [key, bytes] :
       {std::pair("small_all_reduce_bytes", config.small_all_reduce_bytes),
        std::pair("small_broadcast_bytes", config.small_broadcast_bytes)}) {
    if (bytes > config.chunk_bytes && bytes != kAutoBytes) {
      errors.push_back(absl::StrCat(OriginOf(loaded, key), ": ", key, " = ", FormatBytes(bytes),
                                    " is more than chunk_bytes; allowed: up to ",
                                    FormatBytes(config.chunk_bytes)));
    }
  }
  if (config.insecure_peers) {
    loaded.warnings.push_back(
        absl::StrCat(OriginOf(loaded, "insecure_peers"),
                     ": insecure_peers is true: jobs over several nodes need neither a cluster key "
                     "(cluster_key_file) nor a job secret (RINGD_JOB_SECRET), and whoever reaches "
                     "peer_address can take part in them"));
  }
  if (config.socket.empty()) {
    errors.push_back(absl::StrCat(OriginOf(loaded, "socket"), ": socket must not be empty"));
  }
}

}  // namespace

ConfigEnvironment SystemConfigEnvironment() {
  ConfigEnvironment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    environment.variables.emplace_back(*entry);
  }
  environment.default_file = kDefaultConfigFile;
  environment.memory_bytes = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                             static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return environment;
}

absl::StatusOr<LoadedConfig> LoadConfig(const CommandLine& line,
                                        const ConfigEnvironment& environment) {
  LoadedConfig loaded;
  std::string named_file;
  const WrittenSettings variables = FromVariables(environment, named_file, loaded.warnings);
  if (!line.config_file.empty()) named_file = line.config_file;

  WrittenSettings written;
  const std::string& file = named_file.empty() ? environment.default_file : named_file;
  if (!file.empty()) {
    absl::StatusOr<WrittenSettings> from_file = ReadConfigFile(file);
    if (from_file.ok()) {
      written = *std::move(from_file);
      loaded.file = file;
    } else if (!named_file.empty() || !absl::IsNotFound(from_file.status())) {
      return from_file.status();
    }
  }
  written.insert(written.end(), variables.begin(), variables.end());
  written.insert(written.end(), line.settings.begin(), line.settings.end());

  std::vector<std::string> errors;
  for (const WrittenSetting& assignment : written) {
    const Setting* setting = FindSetting(assignment.key);
    if (setting == nullptr) {
      errors.push_back(UnknownKey(assignment));
      continue;
    }
    const absl::Status status = AssignSetting(*setting, assignment.text, loaded.config);
    if (!status.ok()) {
      errors.push_back(absl::StrCat(assignment.origin, ": ", assignment.key, " = \"",
                                    assignment.text, "\" is refused; ", status.message()));
    }
    loaded.origins[assignment.key] = assignment.origin;
  }
  if (errors.empty()) CheckTogether(loaded, environment.memory_bytes, errors);
  if (!errors.empty()) return absl::InvalidArgumentError(absl::StrJoin(errors, "\n"));
  return loaded;
}

std::string PrintConfig(const LoadedConfig& loaded) {
  std::string text =
      absl::StrCat("# file: ", loaded.file.empty() ? "none" : loaded.file.c_str(), "\n");
  for (const Setting& setting : AllSettings()) {
    const auto origin = loaded.origins.find(std::string(setting.key));
    absl::StrAppend(&text, setting.key, " = ", FormatSetting(setting, loaded.config), "  # ",
                    origin == loaded.origins.end() ? "default" : origin->second.c_str(), "\n");
  }
  return text;
}

}  // namespace ringd
