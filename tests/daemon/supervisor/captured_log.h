// What this process logs, for tests of it.
#ifndef RINGD_TESTS_DAEMON_SUPERVISOR_CAPTURED_LOG_H_
#define RINGD_TESTS_DAEMON_SUPERVISOR_CAPTURED_LOG_H_

#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "daemon/config/config.h"
#include "daemon/logging/log_setup.h"
#include "proto/base/clock.h"

namespace ringd {

// From its construction on the log goes to a file of its own, as JSON.
class CapturedLog {
 public:
  explicit CapturedLog(const std::string& level = "info") {
    const int file = ::mkstemp(path_);
    REQUIRE(file >= 0);
    ::close(file);
    Config config;
    config.log_file = path_;
    config.log_format = "json";
    config.log_level = level;
    REQUIRE(StartLogging(config).ok());
  }
  ~CapturedLog() { ::unlink(path_); }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  std::vector<nlohmann::json> Lines() const {
    std::ifstream file(path_);
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  // Those that are there when there are so many of them, or after 20 s.
  std::vector<nlohmann::json> Await(std::size_t count) const {
    const Clock::time_point deadline = Clock::now() + std::chrono::seconds(20);
    std::vector<nlohmann::json> lines = Lines();
    while (lines.size() < count && Clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      lines = Lines();
    }
    return lines;
  }

 private:
  char path_[20] = "/tmp/ringd-XXXXXX";
};

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_SUPERVISOR_CAPTURED_LOG_H_
