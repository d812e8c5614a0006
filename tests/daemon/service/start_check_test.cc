#include "daemon/service/start_check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "proto/base/unique_fd.h"

namespace ringd {
namespace {

using Catch::Contains;

constexpr char kProgram[] = "/bin/true";

// A folder of its own, and a configuration without problems.
struct Machine {
  Machine() {
    char name[] = "/tmp/ringd-XXXXXX";
    folder = mkdtemp(name);
    config.peer_address = "127.0.0.1:0";
    config.socket = folder + "/s";
    config.state_dir = folder + "/state";
    config.log_file = folder + "/log";
    config.ready_file = folder + "/ready";
    config.engine_program = kProgram;
  }
  ~Machine() { std::filesystem::remove_all(folder); }

  // Requirement: there is one problem.
  std::string Problem() const {
    const std::vector<std::string> problems = FindStartProblems(config);
    REQUIRE(problems.size() == 1);
    return problems.front();
  }

  std::string folder;
  Config config;
};

TEST_CASE("FindStartProblems: finds none where there is none, and makes nothing") {
  const Machine machine;
  CHECK(FindStartProblems(machine.config).empty());
  CHECK(std::filesystem::is_empty(machine.folder));
  // Folders that the service manager makes.
  Config service;
  service.engine_program = kProgram;
  CHECK(FindStartProblems(service).empty());
}

TEST_CASE("FindStartProblems: names the setting, what is wrong, and all of it at once") {
  Machine machine;
  const Config good = machine.config;
  machine.config.operators_group = "no-such-group";
  CHECK_THAT(machine.Problem(), Contains("operators_group: there is no group 'no-such-group'"));
  machine.config = good;
  machine.config.peer_address = "192.0.2.77:7117";
  CHECK_THAT(machine.Problem(), Contains("peer_address = \"192.0.2.77:7117\"") &&
                                    Contains("no interface of this machine"));
  machine.config = good;
  machine.config.log_file = machine.folder + "/none/log";
  CHECK_THAT(machine.Problem(), Contains("log_file") && Contains("No such file"));
  machine.config = good;
  machine.config.ready_file = "/proc/none/ready";
  CHECK_THAT(machine.Problem(), Contains("ready_file"));
  machine.config = good;
  machine.config.ready_file = machine.folder;
  CHECK_THAT(machine.Problem(), Contains("ready_file") && Contains("directory"));
  machine.config = good;
  machine.config.socket = machine.folder + "/" + std::string(100, 's');
  CHECK_THAT(machine.Problem(), Contains("socket") && Contains("at most 107 bytes"));
  machine.config = good;
  machine.config.engine_program = machine.folder + "/none";
  CHECK_THAT(machine.Problem(), Contains("engine_program") && Contains("No such file"));
  machine.config = good;
  machine.config.socket = machine.folder + "/none/s";
  CHECK_THAT(machine.Problem(), Contains("socket"));
  machine.config.operators_group = "no-such-group";
  CHECK(FindStartProblems(machine.config).size() == 2);
}

TEST_CASE("CheckPeerAddress: a port that somebody listens on is good") {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  REQUIRE(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(::listen(listener.get(), 1) == 0);
  REQUIRE(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  CHECK(CheckPeerAddress("127.0.0.1:" + std::to_string(ntohs(address.sin_port))).ok());
}

TEST_CASE("CheckPeerAddress: a port that only root may listen on is named to others") {
  int first_of_all = 1024;
  std::ifstream("/proc/sys/net/ipv4/ip_unprivileged_port_start") >> first_of_all;
  if (first_of_all <= 1) {
    WARN("skipped: here everybody may listen on every port");
    return;
  }
  constexpr uid_t kNobody = 65534;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::setuid(kNobody) != 0) ::_exit(2);
    const absl::Status status = CheckPeerAddress("127.0.0.1:1");
    ::_exit(status.message().find("port 1: Permission denied") != std::string::npos ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("CheckStateDir: a folder that is there, or that ringd can make, or none") {
  const Machine machine;
  CHECK(CheckStateDir("").ok());
  CHECK(CheckStateDir(machine.folder).ok());
  CHECK(CheckStateDir(machine.folder + "/new").ok());
  CHECK_FALSE(CheckStateDir(machine.folder + "/none/new").ok());
  // Where root may write, but nobody makes files.
  CHECK_FALSE(CheckStateDir("/proc/new").ok());
  std::ofstream(machine.folder + "/file") << "text";
  const absl::Status status = CheckStateDir(machine.folder + "/file");
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(status.message()), Contains("Not a directory"));
}

}  // namespace
}  // namespace ringd
