#include "proto/base/read_file.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <string>

namespace ringd {
namespace {

constexpr std::size_t kMost = 20'000;

// A file with `text` in it, gone at the end.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text) {
    char path[] = "/tmp/ringd-test-XXXXXX";
    const int fd = ::mkstemp(path);
    REQUIRE(fd >= 0);
    ::close(fd);
    path_ = path;
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~TemporaryFile() { ::unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST_CASE("ReadFile: gives every byte of files that are short enough") {
  const std::size_t length = GENERATE(0, 1, 4095, 4096, 4097, 10'000, kMost);
  std::string text(length, 'x');
  if (length > 0) text.back() = '\0';
  const TemporaryFile file(text);
  const auto read = ReadFile(file.path(), kMost);
  REQUIRE(read.ok());
  CHECK(*read == text);
}

TEST_CASE("ReadFile: a file that is too long is named with the limit, however long it is") {
  const TemporaryFile file(std::string(kMost + 1, 'x'));
  for (const std::string& path : {file.path(), std::string("/dev/zero")}) {
    const auto read = ReadFile(path, kMost);
    CHECK(absl::IsOutOfRange(read.status()));
    CHECK(std::string(read.status().message()) == path + " has more than 20000 bytes");
  }
}

TEST_CASE("ReadFile: reads files whose size the kernel does not tell") {
  const auto read = ReadFile("/proc/self/stat", kMost);
  REQUIRE(read.ok());
  CHECK(read->rfind(std::to_string(::getpid()) + " ", 0) == 0);
}

TEST_CASE("ReadFile: what can't be opened or read is an error, and nothing is thrown") {
  CHECK(absl::IsNotFound(ReadFile("/proc/nothing", kMost).status()));
  const auto directory = ReadFile("/tmp", kMost);
  CHECK_FALSE(directory.ok());
  // Nothing is mapped at its beginning: a stream would throw here.
  const auto memory = ReadFile("/proc/self/mem", kMost);
  REQUIRE_FALSE(memory.ok());
  CHECK(std::string(memory.status().message()).rfind("reading /proc/self/mem: ", 0) == 0);
}

}  // namespace
}  // namespace ringd
