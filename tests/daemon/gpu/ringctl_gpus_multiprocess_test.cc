// `ringctl gpus` and `ringctl status` of a real ringd with emulated libraries, also while a driver
// hangs.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "daemon/service/exit_code.h"
#include "proto/base/clock.h"
#include "tests/daemon/service/ringd_process.h"

namespace ringd {
namespace {

using Catch::Contains;
using std::chrono::milliseconds;
using std::chrono::seconds;

std::string Absolute(const std::string& path) { return std::filesystem::absolute(path); }

const std::string kEmulators = "tests/gpu/emulator/";

// A ringd whose probes, which have its environment, see the emulator with that setting.
class EmulatedNode {
 public:
  explicit EmulatedNode(const std::string& setting = "", const std::string& value = "") {
    if (!setting.empty()) ::setenv(setting.c_str(), value.c_str(), 1);
    ringd.Start({"--backend", "none", "--cuda-library", Absolute(kEmulators + "cuda/libcuda.so.1"),
                 "--nccl-library", Absolute(kEmulators + "nccl/libnccl.so.2")});
    if (!setting.empty()) ::unsetenv(setting.c_str());
    REQUIRE(ringd.WaitForNotification("READY=1"));
  }

  // What ringctl prints; its exit code must be 0.
  std::string Ringctl(const std::string& arguments) const {
    const std::string out = ringd.file("out");
    const std::string command = "timeout -k 5 50 client/cli/ringctl " + arguments + " --socket " +
                                ringd.socket() + " >" + out + " </dev/null";
    CHECK(WEXITSTATUS(std::system(command.c_str())) == 0);
    return ReadWholeFile(out);
  }

  // The probe of the CUDA driver, when it has its limits; 0 after 10 s.
  pid_t WaitForProbe() const {
    const Clock::time_point deadline = Clock::now() + seconds(10);
    while (Clock::now() < deadline) {
      const pid_t probe = FindProbe();
      if (probe > 0 &&
          ReadWholeFile("/proc/" + std::to_string(probe) + "/oom_score_adj") == "1000\n") {
        return probe;
      }
      std::this_thread::sleep_for(milliseconds(10));
    }
    return 0;
  }

  RingdProcess ringd;

 private:
  pid_t FindProbe() const {
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      if (ReadWholeFile(entry.path() / "cmdline").find("cuda-library") == std::string::npos) {
        continue;
      }
      const std::string stat = ReadWholeFile(entry.path() / "stat");
      const std::size_t end = stat.rfind(')');
      if (end == std::string::npos || stat.size() < end + 5) continue;
      if (std::atoi(stat.c_str() + end + 4) == ringd.pid()) return std::stoi(name);
    }
    return 0;
  }
};

const std::string kHang = "RINGD_EMULATOR_CUDA_HANG";

bool WaitUntilGone(pid_t pid) {
  const Clock::time_point deadline = Clock::now() + seconds(10);
  while (::kill(pid, 0) == 0) {
    const std::string stat = ReadWholeFile("/proc/" + std::to_string(pid) + "/stat");
    if (stat.find(") Z") != std::string::npos) break;
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return true;
}

TEST_CASE("ringctl gpus: what there is, as text and as JSON, and a line of ringctl status") {
  const EmulatedNode node("RINGD_EMULATOR_CUDA_DEVICES", "2");
  const std::string text = node.Ringctl("gpus");
  CHECK_THAT(text, Contains("GPUs: 2\n") && Contains("CUDA 13.0") && Contains("NCCL 2.29.7") &&
                       Contains("GPU-72696e67-642d-656d-756c-617465640001"));
  const nlohmann::json reply = nlohmann::json::parse(node.Ringctl("gpus --json"));
  CHECK(reply["schema_version"] == 1);
  CHECK(reply["state"] == "found");
  CHECK(reply["gpus"].size() == 2);
  CHECK(reply["gpus"][1]["memory_bytes"] == "1073741824");
  CHECK_THAT(node.Ringctl("status"), Contains("2 (ringd emulated GPU), CUDA 13.0, NCCL 2.29.7\n"));
}

TEST_CASE("ringctl status: a driver that hangs holds up neither it nor what follows") {
  const EmulatedNode node(kHang, "cuInit");
  const Clock::time_point begin = Clock::now();
  CHECK_THAT(node.Ringctl("status"), Contains("GPUs            being looked for\n"));
  CHECK_THAT(node.Ringctl("jobs"), Contains("No jobs on this node"));
  CHECK(Clock::now() - begin < seconds(10));
}

TEST_CASE("ringd: ends in order while a driver hangs, and takes the probe with it") {
  EmulatedNode node(kHang, "cuInit");
  node.Ringctl("status");
  const pid_t probe = node.WaitForProbe();
  REQUIRE(probe > 0);
  node.ringd.Signal(SIGTERM);
  CHECK(node.ringd.WaitForExit() == kExitDone);
  CHECK(WaitUntilGone(probe));
}

TEST_CASE("ringd: a probe does not outlive a ringd that is killed") {
  EmulatedNode node(kHang, "cuInit");
  node.Ringctl("status");
  const pid_t probe = node.WaitForProbe();
  REQUIRE(probe > 0);
  node.ringd.Signal(SIGKILL);
  CHECK(node.ringd.WaitForExit() == -1);
  CHECK(WaitUntilGone(probe));
}

TEST_CASE("A probe: has limits of its own, and is the first to go when memory runs out") {
  EmulatedNode node(kHang, "cuInit");
  node.Ringctl("status");
  const pid_t probe = node.WaitForProbe();
  REQUIRE(probe > 0);
  const std::string limits = ReadWholeFile("/proc/" + std::to_string(probe) + "/limits");
  CHECK_THAT(limits, Contains("Max cpu time              60                   60 "));
  CHECK_THAT(limits, Contains("Max core file size        0                    0 "));
}

}  // namespace
}  // namespace ringd
