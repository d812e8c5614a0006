#include "daemon/channel/engine_settings.h"

#include <catch2/catch.hpp>

#include "daemon/config/setting_table.h"

namespace ringd {
namespace {

// As texts: each setting of both is equal if these are.
std::string AllOf(const Config& config) {
  std::string all;
  for (const Setting& setting : AllSettings()) {
    all += std::string(setting.key) + "=" + SettingText(setting, config) + "\n";
  }
  return all;
}

TEST_CASE("Settings arrive at an engine as they were sent") {
  Config config;
  config.node_name = "a \"node\"";
  config.allowed_users = {"alice", "bob"};
  config.data_interfaces = {"eth0", "eth1:2"};
  config.chunk_bytes = 123'456;
  config.flat_all_reduce_bytes = kAutoBytes;
  config.small_all_reduce_bytes = 4'097;
  config.spin = std::chrono::nanoseconds(1'500);
  config.socket_mode = 0600;
  config.measure_links = false;
  EngineSettings settings;
  WriteSettings(config, &settings);
  const auto read = ReadSettings(settings);
  REQUIRE(read.status().message() == "");
  CHECK(AllOf(*read) == AllOf(config));
  CHECK(AllOf(*read) != AllOf(Config()));
  CHECK(read->chunk_bytes == 123'456);
  CHECK(read->spin == std::chrono::nanoseconds(1'500));
  CHECK(read->data_interfaces == config.data_interfaces);
}

TEST_CASE("Settings that an engine does not know are refused by name") {
  EngineSettings settings;
  settings.Add()->set_key("warp_factor");
  CHECK(ReadSettings(settings).status().message() == "no setting is called 'warp_factor'");
  settings[0].set_key("chunk_bytes");
  settings[0].set_text("many");
  CHECK(ReadSettings(settings).status().message().find("chunk_bytes: ") == 0);
}

}  // namespace
}  // namespace ringd
