#include "daemon/door/cluster_key.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace ringd {
namespace {

using Catch::Contains;

class KeyFile {
 public:
  explicit KeyFile(const std::string& content, mode_t mode = 0600) {
    char folder[] = "/tmp/key-XXXXXX";
    folder_ = ::mkdtemp(folder);
    std::ofstream(path()) << content;
    REQUIRE(::chmod(path().c_str(), mode) == 0);
  }
  ~KeyFile() { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ + "/cluster.key"; }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

}  // namespace

TEST_CASE("ReadClusterKey: gives the content without line ends behind it") {
  const std::string key(64, 'k');
  CHECK(*ReadClusterKey(KeyFile(key).path()) == key);
  CHECK(*ReadClusterKey(KeyFile(key + "\n").path()) == key);
  CHECK(*ReadClusterKey(KeyFile(key + "\r\n", 0400).path()) == key);
  std::string raw(32, '\0');
  raw[5] = '\n';
  CHECK(*ReadClusterKey(KeyFile(raw).path()) == raw);
  CHECK(ReadClusterKey("")->empty());
}

TEST_CASE("ReadClusterKey: a file that others may read or change is refused") {
  for (const mode_t mode : {0640, 0604, 0644, 0620, 0602, 0610}) {
    INFO(std::oct << mode);
    const KeyFile file(std::string(64, 'k'), mode);
    const auto key = ReadClusterKey(file.path());
    CHECK(key.status().code() == absl::StatusCode::kPermissionDenied);
    CHECK_THAT(std::string(key.status().message()),
               Contains(file.path()) && Contains("chmod 0600"));
  }
}

TEST_CASE("ReadClusterKey: one that is short, endless, no file or not there is refused by name") {
  const auto check = [](const std::string& path, absl::StatusCode code, const std::string& text) {
    const auto key = ReadClusterKey(path);
    CHECK(key.status().code() == code);
    CHECK_THAT(std::string(key.status().message()), Contains(path) && Contains(text));
  };
  const KeyFile shorter(std::string(31, 'k') + "\n\n");
  check(shorter.path(), absl::StatusCode::kInvalidArgument, "31 bytes");
  const KeyFile longer(std::string(kMostClusterKeyBytes + 1, 'k'));
  check(longer.path(), absl::StatusCode::kInvalidArgument, "more than 4096 bytes");
  REQUIRE(::chmod(longer.folder().c_str(), 0700) == 0);
  check(longer.folder(), absl::StatusCode::kInvalidArgument, "no regular file");
  const std::string pipe = longer.folder() + "/pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  check(pipe, absl::StatusCode::kInvalidArgument, "no regular file");
  check(longer.folder() + "/none", absl::StatusCode::kNotFound, "No such file");
}

TEST_CASE("ReadClusterKey: another user's file is refused, unless by root") {
  if (::geteuid() != 0) return;
  const KeyFile file(std::string(64, 'k'));
  REQUIRE(::chown(file.path().c_str(), 1, 1) == 0);
  CHECK(ReadClusterKey(file.path()).ok());
}

}  // namespace ringd
