// A real ringd's probes, on the emulated libraries.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "daemon/gpu/gpu_finder.h"
#include "proto/base/clock.h"

namespace ringd {
namespace {

using Catch::Contains;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Settings = std::map<std::string, std::string>;

const std::string kCuda = "tests/gpu/emulator/cuda/";
const std::string kNccl = "tests/gpu/emulator/nccl/";

// The emulators' settings, which the probes inherit, until it goes.
class Environment {
 public:
  explicit Environment(Settings settings) : settings_(std::move(settings)) {
    for (const auto& [name, value] : settings_) {
      ::setenv(("RINGD_EMULATOR_" + name).c_str(), value.c_str(), 1);
    }
  }
  ~Environment() {
    for (const auto& [name, value] : settings_) ::unsetenv(("RINGD_EMULATOR_" + name).c_str());
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const Settings settings_;
};

GpuFinderOptions Emulated() {
  GpuFinderOptions options;
  options.program = "daemon/ringd";
  options.cuda_library = std::filesystem::absolute(kCuda + "libcuda.so.1");
  options.nccl_library = std::filesystem::absolute(kNccl + "libnccl.so.2");
  return options;
}

// Asks, and waits for the answer, for 20 s at most.
class Question {
 public:
  GpuFinder::Tell Tell() {
    return [this](const v1::GpusReply& reply) {
      reply_ = reply;
      ++answers_;
    };
  }
  const v1::GpusReply& Wait() {
    for (int i = 0; i < 4000 && answers_ == 0; ++i) std::this_thread::sleep_for(milliseconds(5));
    REQUIRE(answers_ == 1);
    return reply_;
  }
  int answers() const { return answers_; }

 private:
  v1::GpusReply reply_;
  std::atomic<int> answers_{0};
};

v1::GpusReply Find(const GpuFinderOptions& options, const Settings& settings = {}) {
  const Environment environment(settings);
  GpuFinder finder(options);
  Question question;
  finder.Find(question.Tell());
  return question.Wait();
}

TEST_CASE("GpuFinder: finds GPUs, their driver and NCCL") {
  const v1::GpusReply reply =
      Find(Emulated(), {{"CUDA_DEVICES", "2"}, {"CUDA_MPS", "on"}, {"CUDA_MIG", "1"}});
  CHECK(reply.state() == "found");
  CHECK(reply.cuda().version() == "13.0");
  CHECK(reply.cuda().problem().empty());
  CHECK(reply.nccl().version() == "2.29.7");
  CHECK(reply.nccl().problem().empty());
  REQUIRE(reply.gpus_size() == 2);
  const v1::Gpu& gpu = reply.gpus(1);
  CHECK(gpu.ordinal() == 1);
  CHECK_THAT(gpu.uuid(), Catch::StartsWith("MIG-"));
  CHECK_THAT(gpu.name(), Catch::StartsWith("ringd emulated GPU"));
  CHECK(gpu.memory_bytes() == std::uint64_t{1} << 30);
  CHECK(gpu.mps() == "on");
  CHECK(gpu.mig());
  CHECK(gpu.numa_node() == 0);
  CHECK(gpu.compute_capability() == "9.0");
  CHECK(gpu.peers(0) == 0);
}

TEST_CASE("GpuFinder: libraries that are not there, and the loader's words") {
  GpuFinderOptions options = Emulated();
  options.cuda_library = "/no/such/libcuda.so.1";
  options.nccl_library = "/no/such/libnccl.so.2";
  const v1::GpusReply reply = Find(options);
  CHECK(reply.state() == "none");
  CHECK(reply.cuda().file() == "/no/such/libcuda.so.1");
  CHECK_THAT(reply.cuda().problem(), Contains("can't be loaded") && Contains("No such file"));
  CHECK_THAT(reply.nccl().problem(), Contains("can't be loaded") && Contains("No such file"));
}

TEST_CASE("GpuFinder: libraries that are not set are not looked for") {
  GpuFinderOptions options = Emulated();
  options.cuda_library = options.nccl_library = "";
  options.program = "/no/such/ringd";
  const v1::GpusReply reply = Find(options);
  CHECK(reply.state() == "none");
  CHECK(reply.cuda().problem() == "cuda_library is not set");
  CHECK(reply.nccl().problem() == "nccl_library is not set");
}

TEST_CASE("GpuFinder: libraries that are too old") {
  const v1::GpusReply reply =
      Find(Emulated(), {{"CUDA_DRIVER_VERSION", "11040"}, {"NCCL_VERSION", "21805"}});
  CHECK(reply.state() == "none");
  CHECK_THAT(reply.cuda().problem(), Contains("11.4") && Contains("11.7"));
  CHECK_THAT(reply.nccl().problem(), Contains("2.18.5") && Contains("2.19.1"));
}

TEST_CASE("GpuFinder: libraries that lack a function") {
  GpuFinderOptions options = Emulated();
  options.cuda_library = std::filesystem::absolute(kCuda + "libcuda_incomplete.so");
  options.nccl_library = std::filesystem::absolute(kNccl + "libnccl_incomplete.so");
  const v1::GpusReply reply = Find(options);
  CHECK(reply.state() == "none");
  CHECK_THAT(reply.cuda().problem(), Contains("no function cuLaunchHostFunc"));
  CHECK_THAT(reply.nccl().problem(), Contains("no function ncclCommSplit"));
}

TEST_CASE("GpuFinder: a driver without GPUs") {
  const v1::GpusReply reply = Find(Emulated(), {{"CUDA_DEVICES", "0"}});
  CHECK(reply.state() == "none");
  CHECK(reply.cuda().version() == "13.0");
  CHECK_THAT(reply.cuda().problem(), Contains("CUDA_ERROR_NO_DEVICE"));
}

TEST_CASE("GpuFinder: a driver that hangs is killed at the deadline, and NCCL is found") {
  GpuFinderOptions options = Emulated();
  options.deadline = seconds(3);
  const Clock::time_point begin = Clock::now();
  const v1::GpusReply reply = Find(options, {{"CUDA_HANG", "cuInit"}});
  CHECK(Clock::now() - begin < seconds(10));
  CHECK(reply.state() == "failed");
  CHECK(reply.cuda().version() == "13.0");
  CHECK(reply.cuda().problem() ==
        "the probe did not end within 3 s and was killed, while initialising the driver (cuInit)");
  CHECK(reply.nccl().version() == "2.29.7");
}

TEST_CASE("GpuFinder: a driver that crashes is told with signal and step, and NCCL is found") {
  // In the probe a sanitizer leaves the signal to the kernel.
  for (const char* options : {"ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"}) {
    ::setenv(options, "handle_segv=0", 1);
  }
  const v1::GpusReply reply =
      Find(Emulated(), {{"CUDA_CRASH", "cuDeviceTotalMem"}, {"CUDA_DEVICES", "3"}});
  CHECK(reply.state() == "failed");
  CHECK(reply.cuda().problem() ==
        "the probe was ended by signal 11 (SIGSEGV), while asking about GPU 0");
  CHECK(reply.nccl().problem().empty());
}

TEST_CASE("GpuFinder: a library that ends the process itself, with its last words") {
  const v1::GpusReply reply = Find(Emulated(), {{"NCCL_VERSION", "nonsense"}});
  CHECK(reply.state() == "found");
  CHECK_THAT(reply.nccl().problem(),
             Contains("signal 6 (SIGABRT)") && Contains("VERSION=nonsense makes no sense"));
}

TEST_CASE("GpuFinder: a program that can't be started is told") {
  GpuFinderOptions options = Emulated();
  options.program = "/no/such/ringd";
  const v1::GpusReply reply = Find(options);
  CHECK(reply.state() == "failed");
  CHECK_THAT(reply.cuda().problem(), Contains("can't be started") && Contains("/no/such/ringd"));
}

// A program in the probe's place that counts how often it was started.
class CountingProgram {
 public:
  CountingProgram() {
    char folder[] = "/tmp/ringd-XXXXXX";
    folder_ = ::mkdtemp(folder);
    std::ofstream(program()) << "#!/bin/sh\necho x >> " << folder_ << "/starts\n"
                             << "while [ -e " << folder_ << "/hold ]; do sleep 0.02; done\n"
                             << "echo '{\"library\":{\"version\":\"1\"},\"gpus\":[{}]}'\n";
    std::filesystem::permissions(program(), std::filesystem::perms::owner_all);
  }
  ~CountingProgram() { std::filesystem::remove_all(folder_); }

  std::string program() const { return folder_ + "/probe"; }
  void Hold() { std::ofstream(folder_ + "/hold").put('x'); }
  void Release() { std::filesystem::remove(folder_ + "/hold"); }
  // Two of each look.
  std::size_t starts() const {
    std::error_code error;
    const auto bytes = std::filesystem::file_size(folder_ + "/starts", error);
    return error ? 0 : bytes / 2;
  }
  GpuFinderOptions options() const {
    GpuFinderOptions options = Emulated();
    options.program = program();
    return options;
  }

 private:
  std::string folder_;
};

TEST_CASE("GpuFinder: many who ask share one look, and its answer for a while") {
  CountingProgram counting;
  counting.Hold();
  GpuFinder finder(counting.options());
  std::vector<Question> questions(50);
  for (Question& question : questions) finder.Find(question.Tell());
  counting.Release();
  for (Question& question : questions) CHECK(question.Wait().state() == "found");
  Question later;
  finder.Find(later.Tell());
  CHECK(later.answers() == 1);
  CHECK(later.Wait().age_seconds() >= 0);
  CHECK(counting.starts() == 2);
}

TEST_CASE("GpuFinder: an answer that is too old is looked for anew, by Find alone") {
  CountingProgram counting;
  GpuFinderOptions options = counting.options();
  options.kept = Clock::duration::zero();
  GpuFinder finder(options);
  Question first;
  Question second;
  Question recalled;
  finder.Find(first.Tell());
  first.Wait();
  finder.Recall(seconds(20), recalled.Tell());
  CHECK(recalled.Wait().state() == "found");
  CHECK(counting.starts() == 2);
  finder.Find(second.Tell());
  second.Wait();
  CHECK(counting.starts() == 4);
}

TEST_CASE("GpuFinder: Recall waits for the first look no longer than its patience") {
  CountingProgram counting;
  counting.Hold();
  GpuFinder finder(counting.options());
  Question impatient;
  Question patient;
  finder.Recall(milliseconds(50), impatient.Tell());
  finder.Recall(seconds(20), patient.Tell());
  CHECK(impatient.Wait().state() == "looking");
  CHECK(patient.answers() == 0);
  counting.Release();
  CHECK(patient.Wait().state() == "found");
  CHECK(counting.starts() == 2);
}

TEST_CASE("GpuFinder: Stop ends a look, and everybody is told") {
  CountingProgram counting;
  counting.Hold();
  GpuFinder finder(counting.options());
  Question question;
  finder.Find(question.Tell());
  while (counting.starts() < 2) std::this_thread::sleep_for(milliseconds(5));
  const Clock::time_point begin = Clock::now();
  finder.Stop();
  CHECK(Clock::now() - begin < seconds(10));
  CHECK(question.Wait().state() == "looking");
  Question late;
  finder.Find(late.Tell());
  CHECK(late.Wait().state() == "looking");
  CHECK(counting.starts() == 2);
}

TEST_CASE("GpuFinder: nobody asks, nothing is started") {
  CountingProgram counting;
  { GpuFinder finder(counting.options()); }
  CHECK(counting.starts() == 0);
}

}  // namespace
}  // namespace ringd
