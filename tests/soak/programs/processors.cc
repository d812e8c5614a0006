// Watches who waits for a processor, so that a step that was late because the machine was busy is
// not counted against ringd. Usage: soak_processors RINGD... -- ENGINE...: pids.
//
//   G BEGIN_NS END_NS                     a thread that sleeps a millisecond at a time, bound to
//                                         one processor, was not run from BEGIN to END: the
//                                         processor was taken away, or stood still
//   R AT_NS WAITED_NS USED_NS... [WAITED_NS USED_NS]...
//                                         how long the kernel's threads that pass packets on
//                                         (ksoftirqd) have waited for processors so far; for each
//                                         RINGD how much time of processors it has used; for each
//                                         ENGINE how long its thread that carries the job has
//                                         waited, and how much time all its threads have used
//
// Runs until standard input ends, so that it ends with whoever started it.
#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace ringd {
namespace {

constexpr std::int64_t kNapNanos = 1'000'000;
constexpr std::int64_t kNoticeableNanos = 4'000'000;
constexpr std::int64_t kSampleNanos = 10'000'000;

std::mutex output;

std::int64_t Nanos(clockid_t clock) {
  timespec now{};
  if (clock_gettime(clock, &now) != 0) return 0;
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void Nap(std::int64_t ns) {
  const timespec nap{ns / 1'000'000'000, ns % 1'000'000'000};
  clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, nullptr);
}

[[noreturn]] void WatchProcessor(int processor) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(processor, &only);
  ::pthread_setaffinity_np(::pthread_self(), sizeof(only), &only);
  for (;;) {
    const std::int64_t begin = Nanos(CLOCK_MONOTONIC);
    Nap(kNapNanos);
    const std::int64_t end = Nanos(CLOCK_MONOTONIC);
    if (end - begin - kNapNanos < kNoticeableNanos) continue;
    const std::lock_guard lock(output);
    std::printf("G %" PRId64 " %" PRId64 "\n", begin + kNapNanos, end);
    std::fflush(stdout);
  }
}

// How long the thread of this folder has waited for processors so far.
std::int64_t WaitedNanos(const std::string& thread) {
  std::int64_t ran = 0;
  std::int64_t waited = 0;
  std::FILE* const file = std::fopen((thread + "/schedstat").c_str(), "re");
  if (file == nullptr) return 0;
  if (std::fscanf(file, "%" SCNd64 " %" SCNd64, &ran, &waited) != 2) waited = 0;
  std::fclose(file);
  return waited;
}

// The first line of a thread's or process's name.
bool HasName(const std::string& folder, const char* beginning) {
  char name[32] = "";
  std::FILE* const comm = std::fopen((folder + "/comm").c_str(), "re");
  if (comm == nullptr) return false;
  const bool read = std::fgets(name, sizeof(name), comm) != nullptr;
  std::fclose(comm);
  return read && std::strncmp(name, beginning, std::strlen(beginning)) == 0;
}

// The folders of those of a folder's processes or threads whose name begins so.
std::vector<std::string> Threads(const std::string& folder, const char* beginning) {
  std::vector<std::string> found;
  DIR* const opened = ::opendir(folder.c_str());
  if (opened == nullptr) return found;
  while (const dirent* entry = ::readdir(opened)) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
    const std::string inside = folder + "/" + entry->d_name;
    if (HasName(inside, beginning)) found.push_back(inside);
  }
  ::closedir(opened);
  return found;
}

std::int64_t ProcessNanos(int pid) {
  clockid_t clock = 0;
  return ::clock_getcpuclockid(pid, &clock) == 0 ? Nanos(clock) : 0;
}

// An engine with a job.
struct Engine {
  int pid = 0;
  std::string thread;  // the folder of the one that carries the job
};

bool InputEnded() {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  char ignored[64];
  return ::poll(&input, 1, 0) > 0 && ::read(STDIN_FILENO, ignored, sizeof(ignored)) <= 0;
}

int Watch(const std::vector<int>& ringds, const std::vector<Engine>& engines) {
  const std::vector<std::string> packets = Threads("/proc", "ksoftirqd/");
  while (!InputEnded()) {
    {
      const std::lock_guard lock(output);
      std::int64_t waited = 0;
      for (const std::string& thread : packets) waited += WaitedNanos(thread);
      std::printf("R %" PRId64 " %" PRId64, Nanos(CLOCK_MONOTONIC), waited);
      for (const int ringd : ringds) std::printf(" %" PRId64, ProcessNanos(ringd));
      for (const Engine& engine : engines) {
        std::printf(" %" PRId64 " %" PRId64, WaitedNanos(engine.thread), ProcessNanos(engine.pid));
      }
      std::printf("\n");
      std::fflush(stdout);
    }
    Nap(kSampleNanos);
  }
  return 0;
}

}  // namespace
}  // namespace ringd

int main(int count, char** arguments) {
  std::vector<int> ringds;
  std::vector<ringd::Engine> engines;
  bool is_engine = false;
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    if (argument == "--") {
      is_engine = true;
      continue;
    }
    const std::string tasks = "/proc/" + argument + "/task";
    const auto threads = ringd::Threads(tasks, is_engine ? "ringd-progress" : "ringd-engines");
    if (threads.size() != 1) {
      std::fprintf(stderr, "soak_processors: %s is no %s\n", arguments[i],
                   is_engine ? "engine with a job" : "ringd");
      return 1;
    }
    if (is_engine) {
      engines.push_back({std::atoi(arguments[i]), threads.front()});
    } else {
      ringds.push_back(std::atoi(arguments[i]));
    }
  }
  cpu_set_t usable;
  CPU_ZERO(&usable);
  ::sched_getaffinity(0, sizeof(usable), &usable);
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (CPU_ISSET(processor, &usable)) std::thread(ringd::WatchProcessor, processor).detach();
  }
  ::_exit(ringd::Watch(ringds, engines));
}
