#include "daemon/supervisor/engine_program.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "daemon/engine_process/walls.h"

namespace ringd {
namespace {

using Catch::Contains;

std::string Why(const Config& config) {
  const absl::StatusOr<EngineProgram> program = EngineProgram::Open(config);
  REQUIRE(program.status().code() == absl::StatusCode::kFailedPrecondition);
  return std::string(program.status().message());
}

TEST_CASE("EngineProgram: the setting, if it names a program") {
  char name[] = "/tmp/ringd-XXXXXX";
  const std::string folder = ::mkdtemp(name);
  Config config;
  config.engine_program = "/bin/true";
  CHECK(EngineProgram::Open(config)->path() == "/bin/true");

  config.engine_program = folder + "/none";
  CHECK_THAT(Why(config), Contains("engine_program = \"" + folder + "/none\"") &&
                              Contains("No such file") &&
                              Contains("install ringd-engine beside ringd"));
  config.engine_program = folder;
  CHECK_THAT(Why(config), Contains("Permission denied"));
  config.engine_program = folder + "/text";
  std::ofstream(config.engine_program) << "#!/bin/sh\n";
  REQUIRE(::chmod(config.engine_program.c_str(), 0600) == 0);
  CHECK_THAT(Why(config), Contains("execute " + config.engine_program + ": Permission denied"));
  std::filesystem::remove_all(folder);
}

TEST_CASE("EngineProgram: without the setting, ringd-engine beside this program") {
  const std::string beside =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "ringd-engine";
  if (std::filesystem::exists(beside)) {
    CHECK(EngineProgram::Open({})->path() == beside);
  } else {
    CHECK_THAT(Why({}), Contains(beside));
  }
}

TEST_CASE("EngineProgram: notices that another file has taken its place, or none") {
  char name[] = "/tmp/ringd-XXXXXX";
  const std::filesystem::path folder = ::mkdtemp(name);
  const std::filesystem::path path = folder / "ringd-engine";
  std::filesystem::copy_file("/bin/true", path);
  std::filesystem::copy_file("/bin/true", folder / "another");
  const auto program = EngineProgram::At(path);
  REQUIRE(program.ok());
  CHECK_FALSE(program->IsReplaced());
  std::filesystem::rename(folder / "another", path);
  CHECK(program->IsReplaced());
  std::filesystem::remove(path);
  CHECK(program->IsReplaced());
  CHECK(absl::IsNotFound(EngineProgram::At(path).status()));
  std::filesystem::remove_all(folder);
}

TEST_CASE("EngineArguments: the file wall is left out only if nobody else is admitted") {
  CHECK(EngineArguments().For({}) == std::vector<std::string>{kOneUserArgument});
  Config config;
  config.allowed_users = {"*"};
  CHECK(EngineArguments().For(config).empty());
  config.allowed_users.clear();
  config.allowed_groups = {"ringd"};
  CHECK(EngineArguments().For(config).empty());
}

TEST_CASE("EngineArguments: NCCL is told which interfaces carry data") {
  Config config;
  config.data_interfaces = {"eth0", "eth1"};
  CHECK(EngineArguments().For(config) ==
        std::vector<std::string>{kNcclInterfacesArgument, "eth0,eth1", kOneUserArgument});
}

TEST_CASE("EngineArguments: the file wall lets libraries be opened that settings name by a path") {
  Config config;
  config.nccl_library = "/opt/nccl/lib/libnccl.so.2";
  CHECK(EngineArguments().For(config) == std::vector<std::string>{kOneUserArgument});
  config.allowed_users = {"*"};
  CHECK(EngineArguments().For(config) ==
        std::vector<std::string>{kLibraryArgument, config.nccl_library});
}

TEST_CASE("EngineArguments: who is admitted no more gets an engine with all walls") {
  EngineArguments arguments;
  CHECK(arguments.For({}) == std::vector<std::string>{kOneUserArgument});
  Config open;
  open.allowed_users = {"alice"};
  CHECK(arguments.For(open).empty());
  CHECK(arguments.For({}).empty());
}

}  // namespace
}  // namespace ringd
