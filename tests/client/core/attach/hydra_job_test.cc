#include "client/core/attach/hydra_job.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace ringd::client {
namespace {

// A /proc with the given processes in it.
class FakeProc {
 public:
  FakeProc() { REQUIRE(::mkdtemp(folder_.data()) != nullptr); }
  ~FakeProc() { std::filesystem::remove_all(folder_); }
  FakeProc(const FakeProc&) = delete;
  FakeProc& operator=(const FakeProc&) = delete;

  void Add(pid_t pid, pid_t parent, const std::string& name,
           const std::vector<std::string>& arguments) {
    const std::string own = folder_ + "/" + std::to_string(pid);
    std::filesystem::create_directory(own);
    std::ofstream(own + "/stat") << pid << " (" << name << ") S " << parent << " 1 1 0 -1";
    std::ofstream line(own + "/cmdline", std::ios::binary);
    for (const std::string& argument : arguments) line << argument << '\0';
  }

  void AddProxy(pid_t pid, const std::string& control_port, const std::string& group = "0") {
    Add(pid, 1, "hydra_pmi_proxy",
        {"/usr/bin/hydra_pmi_proxy", "--control-port", control_port, "--rmk", "user", "--pgid",
         group, "--proxy-id", "0"});
  }

  std::string JobOf(pid_t process) const { return HydraJob(process, folder_); }

 private:
  std::string folder_ = "/tmp/ringd-proc-XXXXXX";
};

TEST_CASE("HydraJob: all ranks below an mpiexec's proxies have its host and port") {
  FakeProc proc;
  proc.AddProxy(100, "node-a:4711");
  proc.AddProxy(200, "node-a:4711");  // of another node
  proc.AddProxy(300, "node-a:4712");
  proc.Add(101, 100, "python", {"python", "train.py"});
  proc.Add(201, 200, "python", {"python", "train.py"});
  proc.Add(301, 300, "python", {"python", "train.py"});
  CHECK(proc.JobOf(101) == "node-a:4711");
  CHECK(proc.JobOf(201) == "node-a:4711");
  CHECK(proc.JobOf(301) == "node-a:4712");
}

TEST_CASE("HydraJob: wrappers may stand between, whatever they are called") {
  FakeProc proc;
  proc.AddProxy(100, "node-a:4711");
  proc.Add(101, 100, "a) R 1 (b", {"sh", "-c", "hydra_pmi_proxy --control-port no:1"});
  proc.Add(102, 101, "time", {"time", "--control-port", "no:2"});
  proc.Add(103, 102, "python", {"python", "train.py"});
  CHECK(proc.JobOf(103) == "node-a:4711");
}

TEST_CASE("HydraJob: what a job has spawned is another job") {
  FakeProc proc;
  proc.AddProxy(100, "node-a:4711", "2");
  proc.Add(101, 100, "python", {"python"});
  CHECK(proc.JobOf(101) == "node-a:4711.2");
}

TEST_CASE("HydraJob: without a proxy there is none, also where /proc ends or goes in circles") {
  FakeProc proc;
  proc.Add(100, 1, "bash", {"bash"});
  proc.Add(101, 100, "python", {"python", "--control-port", "no:1"});
  proc.Add(200, 201, "a", {});
  proc.Add(201, 200, "b", {""});
  proc.Add(300, 1, "hydra_pmi_proxy", {"hydra_pmi_proxy", "--control-port"});
  proc.Add(301, 300, "python", {"python"});
  for (const pid_t process : {101, 200, 301, 999}) {
    CAPTURE(process);
    CHECK(proc.JobOf(process).empty());
  }
  CHECK(HydraJob(::getpid(), "/proc").empty());
}

}  // namespace
}  // namespace ringd::client
