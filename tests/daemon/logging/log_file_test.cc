#include "daemon/logging/log_file.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "proto/base/unique_fd.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;

std::string Content(const std::string& path) {
  std::ifstream file(path);
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

TEST_CASE("LogFile: lines that a full disk has no room for are told, and how many they were") {
  char folder[] = "/tmp/ringd-log-XXXXXX";
  REQUIRE(::mkdtemp(folder) != nullptr);
  const std::string path = std::string(folder) + "/log";
  const std::string told = std::string(folder) + "/told";
  std::filesystem::create_symlink("/dev/full", path);
  auto file = LogFile::Open(path);
  REQUIRE(file.ok());
  spdlog::logger logger("test", *file);
  const UniqueFd standard_error(::dup(STDERR_FILENO));
  REQUIRE(std::freopen(told.c_str(), "w", stderr) != nullptr);
  for (int line = 0; line < 3; ++line) logger.info("lost");
  std::filesystem::remove(path);
  const absl::Status reopened = (*file)->Reopen();
  for (int line = 0; line < 2; ++line) logger.info("written");
  std::fflush(stderr);
  ::dup2(standard_error.get(), STDERR_FILENO);
  CHECK(reopened.ok());
  const std::string words = Content(told);
  CHECK(words == "ringd: log_file " + path + ": No space left on device: lines are lost\n" +
                     "ringd: log_file " + path + ": lines are written again; 3 were lost\n");
  CHECK_THAT(Content(path), Contains("written") && !Contains("lost"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace ringd
