#include "daemon/logging/log_setup.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "daemon/logging/log.h"

namespace ringd {
namespace {

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

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

TEST_CASE("ReopenLog: goes on in a new file, or in the old one if there can be no new one") {
  char folder[] = "/tmp/ringd-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const std::string logs = std::string(folder) + "/logs";
  const std::string elsewhere = std::string(folder) + "/elsewhere";
  std::filesystem::create_directory(logs);
  Config config;
  config.log_file = logs + "/log";
  REQUIRE(StartLogging(config).ok());
  LogInfo("first");
  std::filesystem::rename(config.log_file, logs + "/log.1");
  REQUIRE(ReopenLog().ok());
  LogInfo("second");
  CHECK_THAT(TextOf(logs + "/log.1"), Catch::Contains("first") && !Catch::Contains("second"));
  CHECK_THAT(TextOf(config.log_file), Catch::Contains("second") && !Catch::Contains("first"));

  std::filesystem::rename(logs, elsewhere);
  CHECK(ReopenLog().code() == absl::StatusCode::kUnavailable);
  LogInfo("third");
  CHECK_THAT(TextOf(elsewhere + "/log"), Catch::Contains("third"));
  std::filesystem::remove_all(folder);
}

TEST_CASE("SetLogLevel: counts from the next line on") {
  Config config;
  config.log_file = "/dev/null";
  REQUIRE(StartLogging(config).ok());
  CHECK_FALSE(LogEnabled(LogLevel::kDebug));
  SetLogLevel("debug");
  CHECK(LogEnabled(LogLevel::kDebug));
  SetLogLevel("error");
  CHECK_FALSE(LogEnabled(LogLevel::kWarning));
}

TEST_CASE("StartLogging: lines that go to the journal begin with their priority, others don't") {
  char path[] = "/tmp/ringd-XXXXXX";
  const int file = ::mkstemp(path);
  REQUIRE(file >= 0);
  const int standard_error = ::dup(STDERR_FILENO);
  REQUIRE(::dup2(file, STDERR_FILENO) == STDERR_FILENO);
  struct stat info {};
  REQUIRE(::fstat(file, &info) == 0);
  const std::string stream = std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino);
  ::setenv("JOURNAL_STREAM", stream.c_str(), 1);
  Config config;
  config.log_level = "debug";
  const absl::Status started = StartLogging(config);
  LogError("an end");
  LogWarning("a stall");
  LogInfo("a start");
  LogDebug("a detail");
  // Somebody has redirected it since.
  ::setenv("JOURNAL_STREAM", "1:2", 1);
  const absl::Status restarted = StartLogging(config);
  LogError("elsewhere");
  ::unsetenv("JOURNAL_STREAM");
  ::dup2(standard_error, STDERR_FILENO);
  ::close(standard_error);
  ::close(file);
  REQUIRE(started.ok());
  REQUIRE(restarted.ok());

  std::ifstream lines(path);
  std::vector<std::string> begins;
  for (std::string line; std::getline(lines, line);) begins.push_back(line.substr(0, 3));
  CHECK(begins == std::vector<std::string>{"<3>", "<4>", "<6>", "<7>", "202"});
  std::filesystem::remove(path);
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
