#include "daemon/logging/log_setup.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "daemon/logging/log.h"

namespace ringd {
namespace {

TEST_CASE("StartLogging: writes JSON lines of the configured level to the configured file") {
  char folder[] = "/tmp/ringd-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  Config config;
  config.log_file = std::string(folder) + "/log";
  config.log_format = "json";
  config.log_level = "warning";
  REQUIRE(StartLogging(config).ok());
  CHECK_FALSE(LogEnabled(LogLevel::kInfo));
  CHECK(LogEnabled(LogLevel::kWarning));
  LogInfo("left out");
  LogWarning("a stall", {.job = "train", .rank = 1, .communicator = 2, .generation = 0});
  LogError("an end");

  std::ifstream file(config.log_file);
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  REQUIRE(lines.size() == 2);
  CHECK(lines[0]["message"] == "a stall");
  CHECK(lines[0]["job"] == "train");
  CHECK(lines[0]["rank"] == 1);
  CHECK(lines[0]["communicator"] == 2);
  CHECK(lines[0]["generation"] == 0);
  CHECK(lines[1]["level"] == "error");
  CHECK_FALSE(lines[1].contains("job"));
  std::filesystem::remove_all(folder);
}

TEST_CASE("StartLogging: a file that can't be opened is an error that names file and setting") {
  Config config;
  config.log_file = "/proc/no/such/log";
  const absl::Status status = StartLogging(config);
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK_THAT(std::string(status.message()),
             Catch::Contains("log_file") && Catch::Contains("/proc/no/such/log"));
}

}  // namespace
}  // namespace ringd
