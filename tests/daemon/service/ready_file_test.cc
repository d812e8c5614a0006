#include "daemon/service/ready_file.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace ringd {
namespace {

struct Folder {
  Folder() {
    char name[] = "/tmp/ringd-XXXXXX";
    path = ::mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

pid_t PidOfNobody() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return child;
}

TEST_CASE("ReadyFile: is there as long as its owner, for everybody to read") {
  const Folder folder;
  const std::string path = folder.path + "/ready";
  const mode_t before = ::umask(0077);
  {
    const auto ready = ReadyFile::Write(path, "/s", "127.0.0.1:7117", "node-a");
    REQUIRE(ready.ok());
    struct stat found {};
    REQUIRE(::stat(path.c_str(), &found) == 0);
    CHECK((found.st_mode & 0777) == 0644);
  }
  ::umask(before);
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("ReadyFile: what one that was killed has left is removed, and nothing else") {
  const Folder folder;
  const std::string path = folder.path + "/ready";
  const auto stays = [&path](const std::string& text) {
    std::ofstream(path) << text;
    ReadyFile::RemoveStale(path);
    return std::filesystem::exists(path);
  };
  CHECK_FALSE(stays("{\"pid\":" + std::to_string(PidOfNobody()) + "}"));
  CHECK_FALSE(stays("{\"pid\":" + std::to_string(::getpid()) + "}"));
  CHECK(stays("{\"pid\":" + std::to_string(::getppid()) + "}"));
  CHECK(stays("{\"pid\":-1}"));
  CHECK(stays("{\"pid\":123456789012}"));
  CHECK(stays("{\"pid\":\"7\"}"));
  CHECK(stays("[]"));
  CHECK(stays("not JSON"));
  ReadyFile::RemoveStale("");
}

}  // namespace
}  // namespace ringd
