#include "daemon/config/setting_table.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <utility>

namespace ringd {
namespace {

TEST_CASE("AllSettings: keys are unique and each default is a value that its own row allows") {
  std::set<std::string> keys;
  for (const Setting& setting : AllSettings()) {
    INFO(std::string(setting.key));
    CHECK(keys.insert(std::string(setting.key)).second);
    CHECK_FALSE(setting.help.empty());
    std::string text = FormatSetting(setting, Config{});
    if (setting.kind == SettingKind::kList || setting.kind == SettingKind::kOrder) {
      CHECK(text == "[]");
      continue;
    }
    if (text.front() == '"') text = text.substr(1, text.size() - 2);
    Config config;
    CHECK(AssignSetting(setting, text, config).message() == "");
    CHECK(FormatSetting(setting, config) == FormatSetting(setting, Config{}));
  }
}

TEST_CASE(
    "AssignSetting: a refused value leaves the configuration as it was and names what is allowed") {
  struct Case {
    const char* key;
    const char* text;
    const char* allowed;
  };
  for (const Case& refused : {
           Case{"stall_warning", "5 parsecs", "such as \"5s\""},
           Case{"stall_warning", "1ns", "between 10ms and 24h"},
           Case{"arena_bytes", "1KiB", "between 1MiB and 64TiB"},
           Case{"submission_ring_capacity", "1000", "a power of two between 16 and 1048576"},
           Case{"max_sessions", "0", "a whole number between 1 and 65536"},
           Case{"socket_mode", "0888", "octal"},
           Case{"socket_mode", "7777", "octal"},
           Case{"log_format", "xml", "one of text, json"},
           Case{"learn_schedule", "maybe", "true or false"},
           Case{"peer_address", "nowhere", "host:port"},
           Case{"state_dir", "var/lib", "an absolute path"},
           Case{"node_name", "a\nb", "control character"},
           Case{"state_dir", "/tmp/caf\xe9", "not UTF-8"},
           Case{"allowed_users", "alice,\xff", "not UTF-8"},
           Case{"cluster_key_file", "cluster.key", "an absolute path"},
           Case{"insecure_peers", "perhaps", "true or false"},
           Case{"fusion", "sometimes", "learned, pinned, off, or a size"},
           Case{"small_all_reduce_bytes", "129KiB", "auto, or a size"},
           Case{"small_all_reduce_bytes", "automatic", "auto, or a size"},
           Case{"reducer_threads", "65", "auto, or a whole number between 0 and 64"},
           Case{"reducer_threads", "some", "auto, or a whole number between 0 and 64"},
           Case{"streams_per_neighbour", "0", "auto, or a whole number between 1 and 16"},
           Case{"ring_order", "a,b, a", "'a' is there twice; allowed: a list of names, each once"},
           Case{"data_interfaces", "eth0,eth0", "'eth0' is there twice"},
       }) {
    INFO(refused.key << " = " << refused.text);
    const Setting* setting = FindSetting(refused.key);
    REQUIRE(setting != nullptr);
    Config config;
    const absl::Status status = AssignSetting(*setting, refused.text, config);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(status.message()), Catch::Contains(refused.allowed));
    CHECK(FormatSetting(*setting, config) == FormatSetting(*setting, Config{}));
  }
}

TEST_CASE("AssignSetting: lists are split at commas, modes are octal") {
  Config config;
  CHECK(AssignSetting(*FindSetting("allowed_users"), " alice, bob,,", config).ok());
  CHECK(config.allowed_users == std::vector<std::string>{"alice", "bob"});
  CHECK(AssignSetting(*FindSetting("socket_mode"), "0660", config).ok());
  CHECK(config.socket_mode == 0660);
  CHECK(AssignSetting(*FindSetting("socket_mode"), "0o600", config).ok());
  CHECK(config.socket_mode == 0600);
}

TEST_CASE("AssignSetting: a size that may be chosen for the user can be given or left to ringd") {
  const auto [key, field] =
      GENERATE(std::pair("small_all_reduce_bytes", &Config::small_all_reduce_bytes),
               std::pair("flat_all_reduce_bytes", &Config::flat_all_reduce_bytes));
  const Setting& setting = *FindSetting(key);
  Config config;
  CHECK(FormatSetting(setting, config) == "\"auto\"");
  CHECK(AssignSetting(setting, "16KiB", config).ok());
  CHECK(config.*field == 16 << 10);
  CHECK(FormatSetting(setting, config) == "\"16KiB\"");
  CHECK(AssignSetting(setting, "0", config).ok());
  CHECK(config.*field == 0);
  CHECK(AssignSetting(setting, "auto", config).ok());
  CHECK(config.*field == kAutoBytes);
}

TEST_CASE("AssignSetting: a number that may be chosen for the user can be given or left to ringd") {
  const auto [key, field] =
      GENERATE(std::pair("reducer_threads", &Config::reducer_threads),
               std::pair("streams_per_neighbour", &Config::streams_per_neighbour));
  const Setting& setting = *FindSetting(key);
  Config config;
  CHECK(FormatSetting(setting, config) == "\"auto\"");
  CHECK(AssignSetting(setting, "3", config).ok());
  CHECK(config.*field == 3);
  CHECK(FormatSetting(setting, config) == "3");
  CHECK(AssignSetting(setting, "auto", config).ok());
  CHECK(config.*field == kAutoCount);
}

TEST_CASE("AssignSetting: a library is a name, an absolute path, or none") {
  const Setting& setting = *FindSetting("cuda_library");
  Config config;
  for (const char* const text : {"libcuda.so.1", "/opt/x/libcuda.so.1", ""}) {
    CHECK(AssignSetting(setting, text, config).ok());
    CHECK(config.cuda_library == text);
  }
  CHECK_FALSE(AssignSetting(setting, "lib/libcuda.so.1", config).ok());
  CHECK(config.cuda_library.empty());
}

TEST_CASE("SuggestSetting: finds the near miss and stays silent about strangers") {
  CHECK(SuggestSetting("log-levle")->key == "log_level");
  CHECK(SuggestSetting("STALL_WARNINGS")->key == "stall_warning");
  CHECK(SuggestSetting("xyzzy") == nullptr);
}

TEST_CASE("Names of a setting: the variable and the flag follow from the key") {
  CHECK(VariableOf(*FindSetting("log_level")) == "RINGD_LOG_LEVEL");
  CHECK(FlagOf(*FindSetting("log_level")) == "--log-level");
}

}  // namespace
}  // namespace ringd
