// deploy/ringd.toml: what people copy from.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <string>

#include "daemon/config/config_file.h"
#include "daemon/config/config_loader.h"
#include "daemon/config/setting_table.h"

namespace ringd {
namespace {

struct Entry {
  std::string section;
  bool commented_out = false;
  std::string value;
  std::string comment;
};

struct Example {
  std::map<std::string, Entry> entries;  // by key
  std::string uncommented;               // the file with every setting in force
};

Example ReadExample() {
  const std::regex entry("(#?)([a-z_]+) = (.*?)( +# (.*))?");
  const std::regex heading("# ---- (.*) ----");
  Example example;
  std::ifstream file("deploy/ringd.toml");
  REQUIRE(file.is_open());
  std::string section;
  for (std::string line; std::getline(file, line);) {
    std::smatch parts;
    if (std::regex_match(line, parts, heading)) section = parts[1];
    if (!std::regex_match(line, parts, entry)) {
      example.uncommented += line + "\n";
      continue;
    }
    INFO(line);
    CHECK(example.entries.count(parts[2]) == 0);
    example.entries[parts[2]] = {section, parts[1] == "#", parts[3], parts[5]};
    example.uncommented += line.substr(parts[1] == "#" ? 1 : 0) + "\n";
  }
  return example;
}

}  // namespace

TEST_CASE("the example configuration has every setting, and nothing else") {
  const Example example = ReadExample();
  for (const Setting& setting : AllSettings()) {
    INFO(setting.key);
    CHECK(example.entries.count(std::string(setting.key)) == 1);
  }
  for (const auto& [key, entry] : example.entries) {
    INFO(key);
    CHECK(FindSetting(key) != nullptr);
  }
}

TEST_CASE("the example configuration shows defaults, or says what the default is") {
  for (const auto& [key, entry] : ReadExample().entries) {
    const Setting* setting = FindSetting(key);
    if (setting == nullptr || entry.comment.find("default") != std::string::npos) continue;
    // Durations have several spellings.
    if (setting->kind == SettingKind::kDuration) continue;
    INFO(key);
    if (key == "allowed_groups") continue;  // it is in force
    CHECK(entry.value == FormatSetting(*setting, Config{}));
  }
}

TEST_CASE("the example configuration is good with all settings in force") {
  char path[] = "/tmp/exampleXXXXXX";
  const int fd = ::mkstemp(path);
  REQUIRE(fd >= 0);
  ::close(fd);
  std::ofstream(path) << ReadExample().uncommented;
  CommandLine line;
  line.config_file = path;
  const absl::StatusOr<LoadedConfig> loaded = LoadConfig(line, ConfigEnvironment{});
  CHECK(loaded.status().message() == "");
  std::filesystem::remove(path);
}

TEST_CASE("the example configuration says which settings are those of a whole job") {
  for (const auto& [key, entry] : ReadExample().entries) {
    INFO(key);
    const Setting* setting = FindSetting(key);
    REQUIRE(setting != nullptr);
    CHECK(setting->job_wide == (entry.section.find("ringd on rank 0's node") != std::string::npos));
  }
}

}  // namespace ringd
