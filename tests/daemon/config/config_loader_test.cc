#include "daemon/config/config_loader.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

namespace ringd {
namespace {

using Catch::Contains;

// A configuration file in a folder of its own.
class TempFile {
 public:
  explicit TempFile(const std::string& content) {
    char folder[] = "/tmp/ringd-XXXXXX";
    folder_ = mkdtemp(folder);
    std::ofstream(path()) << content;
  }
  ~TempFile() { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ + "/ringd.toml"; }

 private:
  std::string folder_;
};

absl::StatusOr<LoadedConfig> Load(std::vector<const char*> arguments,
                                  const ConfigEnvironment& environment = {}) {
  absl::StatusOr<CommandLine> line = ParseCommandLine(arguments);
  if (!line.ok()) return line.status();
  return LoadConfig(*line, environment);
}

absl::StatusOr<LoadedConfig> LoadFile(const std::string& content) {
  const TempFile file(content);
  const std::string path = file.path();
  return Load({"--config", path.c_str()});
}

std::string ErrorOf(const absl::StatusOr<LoadedConfig>& loaded) {
  return loaded.ok() ? "no error" : std::string(loaded.status().message());
}

TEST_CASE("LoadConfig: without any source, the defaults") {
  const absl::StatusOr<LoadedConfig> loaded = Load({});
  REQUIRE(loaded.ok());
  CHECK(loaded->config.socket == "/run/ringd/ringd.sock");
  CHECK(loaded->config.stall_warning == std::chrono::seconds(5));
  CHECK(loaded->file.empty());
  CHECK(loaded->origins.empty());
}

TEST_CASE("LoadConfig: flags win over variables, these over the file, this over defaults") {
  const TempFile file("stall_warning = \"1s\"\nspin = \"1us\"\nlog_level = \"debug\"\n");
  ConfigEnvironment environment;
  environment.default_file = file.path();
  environment.variables = {"RINGD_STALL_WARNING=2s", "RINGD_SPIN=2us", "PATH=/bin"};
  const absl::StatusOr<LoadedConfig> loaded = Load({"--stall-warning", "3s"}, environment);
  REQUIRE(loaded.ok());
  CHECK(loaded->config.stall_warning == std::chrono::seconds(3));
  CHECK(loaded->config.spin == std::chrono::microseconds(2));
  CHECK(loaded->config.log_level == "debug");
  CHECK(loaded->config.log_format == "text");
  CHECK(loaded->origins.at("stall_warning") == "flag --stall-warning");
  CHECK(loaded->origins.at("spin") == "variable RINGD_SPIN");
  CHECK(loaded->origins.at("log_level") == file.path() + ":3");
  CHECK_THAT(PrintConfig(*loaded), Contains("stall_warning = \"3s\"  # flag --stall-warning"));
  CHECK_THAT(PrintConfig(*loaded), Contains("log_format = \"text\"  # default"));
}

TEST_CASE("LoadConfig: TOML's own types are read: numbers, booleans, lists, octal modes") {
  const absl::StatusOr<LoadedConfig> loaded = LoadFile(
      "max_sessions = 12\nlearn_schedule = false\nallowed_users = [\"a\", \"b\"]\n"
      "socket_mode = 0o660\nchunk_bytes = 65536\n");
  INFO(ErrorOf(loaded));
  REQUIRE(loaded.ok());
  CHECK(loaded->config.max_sessions == 12);
  CHECK_FALSE(loaded->config.learn_schedule);
  CHECK(loaded->config.allowed_users == std::vector<std::string>{"a", "b"});
  CHECK(loaded->config.socket_mode == 0660);
  CHECK(loaded->config.chunk_bytes == 65536);
}

TEST_CASE("LoadConfig: a mode that is a decimal number is refused: its bits are others") {
  CHECK_THAT(ErrorOf(LoadFile("\nsocket_mode = 660\n")),
             Contains("ringd.toml:2: socket_mode") && Contains("\"660\" or 0o660"));
  CHECK_FALSE(LoadFile("socket_mode = -1\n").ok());
  CHECK_FALSE(LoadFile("socket_mode = 0x1b0\n").ok());
}

TEST_CASE("LoadConfig: what --print-config prints is a file that loads to the same values") {
  const absl::StatusOr<LoadedConfig> first = Load(
      {"--node-name", "a \"quoted\" \\ name", "--allowed-users", "x,y", "--socket-mode", "0600"});
  REQUIRE(first.ok());
  const absl::StatusOr<LoadedConfig> second = LoadFile(PrintConfig(*first));
  INFO(ErrorOf(second));
  REQUIRE(second.ok());
  CHECK(second->config.node_name == "a \"quoted\" \\ name");
  CHECK(second->config.allowed_users == first->config.allowed_users);
  CHECK(second->config.socket_mode == 0600);
}

TEST_CASE("LoadConfig: an unknown key names file, line and the nearest key") {
  const absl::StatusOr<LoadedConfig> loaded =
      LoadFile("socket = \"/tmp/a\"\n\nstall_warnin = \"5s\"\n");
  CHECK(loaded.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(ErrorOf(loaded), Contains("ringd.toml:3: unknown key 'stall_warnin'"));
  CHECK_THAT(ErrorOf(loaded), Contains("did you mean stall_warning?"));
}

TEST_CASE("LoadConfig: an unknown key without a neighbour lists the keys, also for a section") {
  CHECK_THAT(ErrorOf(LoadFile("qqqqqqqq = 1\n")), Contains("allowed: socket, socket_mode,"));
  CHECK_THAT(ErrorOf(LoadFile("\n[engine]\nspin = \"1us\"\n")),
             Contains("ringd.toml:2: unknown key 'engine'"));
}

TEST_CASE("LoadConfig: a bad value names file, line, key, value and what is allowed") {
  CHECK_THAT(ErrorOf(LoadFile("\nlog_format = \"xml\"\n")),
             Contains("ringd.toml:2: log_format = \"xml\" is refused; allowed: one of text, json"));
  CHECK_THAT(ErrorOf(LoadFile("stall_warning = true\n")), Contains("ringd.toml:1: stall_warning"));
  CHECK_THAT(ErrorOf(LoadFile("spin = 1979-05-27\n")),
             Contains("ringd.toml:1: spin: the value must be a string"));
}

TEST_CASE("LoadConfig: all mistakes are reported at once, each with its source") {
  ConfigEnvironment environment;
  environment.variables = {"RINGD_SPIN=fast"};
  const std::string error = ErrorOf(Load({"--max-sessions", "0"}, environment));
  CHECK_THAT(error, Contains("variable RINGD_SPIN: spin = \"fast\" is refused"));
  CHECK_THAT(error, Contains("flag --max-sessions: max_sessions = \"0\" is refused"));
}

TEST_CASE("LoadConfig: a file that is no TOML names the line") {
  CHECK_THAT(ErrorOf(LoadFile("socket = \"/tmp/a\"\nspin = \n")), Contains("ringd.toml:2: "));
  CHECK_THAT(ErrorOf(LoadFile("arena_bytes = 8GiB\n")), Contains("quotation marks: \"8GiB\""));
  CHECK_THAT(ErrorOf(LoadFile("start_timeout = 1.5s\n")), Contains("quotation marks"));
  CHECK_THAT(ErrorOf(LoadFile("spin = \"1us\"\nspin = \"2us\"\n")), Contains("ringd.toml:2: "));
}

TEST_CASE("LoadConfig: a file that was named must exist, the default one need not") {
  CHECK(Load({"--config", "/nonexistent/ringd.toml"}).status().code() ==
        absl::StatusCode::kNotFound);
  ConfigEnvironment environment;
  environment.default_file = "/nonexistent/ringd.toml";
  CHECK(Load({}, environment).ok());
  environment.variables = {"RINGD_CONFIG=/nonexistent/other.toml"};
  CHECK_THAT(ErrorOf(Load({}, environment)), Contains("/nonexistent/other.toml"));
}

TEST_CASE("LoadConfig: other programs' variables are left alone, a misspelt one is warned about") {
  ConfigEnvironment environment;
  environment.variables = {"RINGD_PYTHON=/usr/bin/python3", "RINGD_SOCKETT=/tmp/a"};
  const absl::StatusOr<LoadedConfig> loaded = Load({}, environment);
  REQUIRE(loaded.ok());
  REQUIRE(loaded->warnings.size() == 1);
  CHECK_THAT(loaded->warnings[0], Contains("RINGD_SOCKETT") && Contains("RINGD_SOCKET?"));
}

TEST_CASE("LoadConfig: insecure_peers gets a warning that names its origin, unless it is false") {
  const absl::StatusOr<LoadedConfig> loaded = Load({"--insecure-peers", "true"});
  REQUIRE(loaded.ok());
  CHECK(loaded->config.insecure_peers);
  REQUIRE(loaded->warnings.size() == 1);
  CHECK_THAT(loaded->warnings[0],
             Contains("flag --insecure-peers") && Contains("cluster_key_file"));
  CHECK(Load({"--insecure-peers", "false"})->warnings.empty());
}

TEST_CASE("LoadConfig: an arena larger than the machine is an error, the default is lowered") {
  ConfigEnvironment environment;
  environment.memory_bytes = (std::uint64_t{1} << 30) + 5;
  CHECK_THAT(ErrorOf(Load({"--arena-bytes", "2GiB"}, environment)),
             Contains("flag --arena-bytes") && Contains("allowed: up to 1024MiB"));
  CHECK(Load({}, environment)->config.arena_bytes == std::uint64_t{1} << 30);
}

TEST_CASE("LoadConfig: peer_interface and a host in peer_address exclude each other") {
  CHECK_THAT(ErrorOf(Load({"--peer-interface", "lo", "--peer-address", "10.0.0.1:1"})),
             Contains("exclude each other"));
  CHECK(Load({"--peer-interface", "lo", "--peer-address", ":1"}).ok());
  CHECK(Load({"--peer-interface", "lo"}).ok());
  CHECK_THAT(ErrorOf(Load({"--peer-address", ":1"})), Contains("only with peer_interface"));
}

TEST_CASE("LoadConfig: a small operation is not larger than a chunk") {
  CHECK_THAT(ErrorOf(Load({"--chunk-bytes", "16KiB"})),
             Contains("default of small_broadcast_bytes") && Contains("allowed: up to 16KiB"));
  CHECK_THAT(ErrorOf(Load({"--chunk-bytes", "16KiB", "--small-broadcast-bytes", "8KiB",
                           "--small-all-reduce-bytes", "17KiB"})),
             Contains("small_all_reduce_bytes") && Contains("allowed: up to 16KiB"));
  CHECK(Load({"--chunk-bytes", "16KiB", "--small-broadcast-bytes", "8KiB"}).ok());
}

TEST_CASE("ParseCommandLine: an unknown flag is an error with the nearest flag") {
  CHECK_THAT(ErrorOf(Load({"--log-levle=debug"})),
             Contains("--log-levle") && Contains("did you mean --log-level?"));
  CHECK_FALSE(Load({"serve"}).ok());
  CHECK_FALSE(Load({"--socket"}).ok());
}

TEST_CASE("ParseCommandLine: --probe-gpus is for one of two libraries") {
  const char* const arguments[] = {"--probe-gpus", "nccl", "--nccl-library", "/n.so"};
  const absl::StatusOr<CommandLine> line = ParseCommandLine(arguments);
  REQUIRE(line.ok());
  CHECK(line->action == CommandLineAction::kProbeGpus);
  CHECK(line->probed == "nccl");
  REQUIRE(line->settings.size() == 1);
  CHECK(line->settings[0].text == "/n.so");
  const char* const other[] = {"--probe-gpus", "rocm"};
  CHECK_FALSE(ParseCommandLine(other).ok());
}

TEST_CASE("ParseCommandLine: help names every setting with its variable") {
  const absl::StatusOr<CommandLine> line = ParseCommandLine(std::vector<const char*>{"--help"});
  REQUIRE(line.ok());
  CHECK(line->action == CommandLineAction::kHelp);
  for (const char* text :
       {"--socket", "RINGD_STALL_WARNING", "--check-config", "one of text, json"}) {
    CHECK_THAT(line->help, Contains(text));
  }
}

TEST_CASE("ParseCommandLine: help says of which settings rank 0's ringd decides for the job") {
  const std::string help = ParseCommandLine(std::vector<const char*>{"--help"})->help;
  // Its paragraph in one line.
  const auto of = [&help](const std::string& flag) {
    const std::size_t begin = help.find("\n  " + flag + "\n");
    REQUIRE(begin != std::string::npos);
    const std::string text = help.substr(begin, help.find("\n  --", begin + 1) - begin);
    return std::regex_replace(text, std::regex("\\s+"), " ");
  };
  for (const char* flag : {"--ring-order", "--measure-links", "--fusion", "--fusion-threshold",
                           "--learn-schedule", "--chunk-bytes", "--flat-all-reduce-bytes",
                           "--small-all-reduce-bytes", "--small-broadcast-bytes"}) {
    CHECK_THAT(of(flag), Contains("that of the ringd on rank 0's node counts"));
  }
  CHECK_THAT(of("--transports"), !Contains("rank 0"));
}

}  // namespace
}  // namespace ringd
