#include "client/cli/trace/new_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace ringd::cli {
namespace {

namespace fs = std::filesystem;

struct Folder {
  Folder() : path(fs::path(std::getenv("TEST_TMPDIR")) / "new_file") {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~Folder() { fs::remove_all(path); }
  std::size_t count() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(path), fs::directory_iterator()));
  }
  fs::path path;
};

std::string ContentOf(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_CASE("NewFile: replaces what was there, as a whole, when it is complete") {
  const Folder folder;
  const fs::path path = folder.path / "out.json";
  std::ofstream(path) << "old";
  auto file = NewFile::Create(path);
  REQUIRE(file.ok());
  (*file)->Write("new");
  CHECK(ContentOf(path) == "old");
  REQUIRE((*file)->Commit().ok());
  CHECK(ContentOf(path) == "new");
  CHECK(folder.count() == 1);
}

TEST_CASE("NewFile: leaves nothing if it is not completed") {
  const Folder folder;
  {
    auto file = NewFile::Create(folder.path / "out.json");
    REQUIRE(file.ok());
    (*file)->Write("half");
  }
  CHECK(folder.count() == 0);
}

TEST_CASE("NewFile: where nothing can be written says so at once, with the path") {
  const Folder folder;
  for (const fs::path& path : {folder.path / "none" / "out.json", folder.path}) {
    const auto file = NewFile::Create(path);
    REQUIRE_FALSE(file.ok());
    CHECK_THAT(std::string(file.status().message()), Catch::Matchers::Contains(path.string()));
  }
  CHECK(folder.count() == 0);
}

TEST_CASE("NewFile: a pipe or a device stays what it is, and gets the text") {
  const Folder folder;
  const fs::path path = folder.path / "pipe";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
  REQUIRE(reader >= 0);
  auto file = NewFile::Create(path);
  REQUIRE(file.ok());
  (*file)->Write("text");
  REQUIRE((*file)->Commit().ok());
  char read[8] = {};
  CHECK(::read(reader, read, sizeof read) == 4);
  CHECK(std::string(read) == "text");
  CHECK(fs::is_fifo(path));
  CHECK(folder.count() == 1);
  ::close(reader);
}

TEST_CASE("NewFile: a symbolic link stays, and what it leads to is replaced") {
  const Folder folder;
  const fs::path target = folder.path / "target.json";
  const fs::path link = folder.path / "latest.json";
  const bool is_there = GENERATE(true, false);
  if (is_there) std::ofstream(target) << "old";
  fs::create_symlink("target.json", link);
  auto file = NewFile::Create(link);
  REQUIRE(file.ok());
  (*file)->Write("new");
  REQUIRE((*file)->Commit().ok());
  CHECK(fs::is_symlink(link));
  CHECK(ContentOf(target) == "new");
  CHECK(folder.count() == 2);
}

TEST_CASE("NewFile: what can't be put in its place is told when it is completed") {
  const Folder folder;
  const fs::path inner = folder.path / "inner";
  fs::create_directories(inner);
  auto file = NewFile::Create(inner / "out.json");
  REQUIRE(file.ok());
  (*file)->Write("text");
  fs::remove_all(inner);
  CHECK_FALSE((*file)->Commit().ok());
}

}  // namespace
}  // namespace ringd::cli
