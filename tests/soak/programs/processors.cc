// Watches who waits for a processor, so that a step that was late because the machine was busy is
// not counted against ringd. Usage: soak_processors PID...: the ringds.
//
//   G BEGIN_NS END_NS                     a thread that sleeps a millisecond at a time, bound to
//                                         one processor, was not run from BEGIN to END: the
//                                         processor was taken away, or stood still
//   R AT_NS WAITED_NS [WAITED_NS USED_NS]...
//                                         how long the kernel's threads that pass packets on
//                                         (ksoftirqd) have waited for processors so far; for each
//                                         PID how long its engine has, and how much time of
//                                         processors all its threads have used
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

// The second number of a schedstat: how long that thread has waited for processors so far.
std::int64_t WaitedNanos(const std::string& schedstat) {
  std::int64_t ran = 0;
  std::int64_t waited = 0;
  std::FILE* const file = std::fopen(schedstat.c_str(), "re");
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

// The schedstats of those of a folder's processes or threads whose name begins so.
std::vector<std::string> Schedstats(const std::string& folder, const char* beginning) {
  std::vector<std::string> found;
  DIR* const opened = ::opendir(folder.c_str());
  if (opened == nullptr) return found;
  while (const dirent* entry = ::readdir(opened)) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
    const std::string inside = folder + "/" + entry->d_name;
    if (HasName(inside, beginning)) found.push_back(inside + "/schedstat");
  }
  ::closedir(opened);
  return found;
}

// The engine of one ringd, which is one of its threads.
class Engine {
 public:
  explicit Engine(int pid) {
    ::clock_getcpuclockid(pid, &clock_);
    for (const std::string& schedstat :
         Schedstats("/proc/" + std::to_string(pid) + "/task", "ringd-engine")) {
      schedstat_ = schedstat;
    }
  }

  bool found() const { return !schedstat_.empty(); }
  std::int64_t used() const { return Nanos(clock_); }
  std::int64_t waited() const { return WaitedNanos(schedstat_); }

 private:
  clockid_t clock_ = CLOCK_MONOTONIC;
  std::string schedstat_;
};

bool InputEnded() {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  char ignored[64];
  return ::poll(&input, 1, 0) > 0 && ::read(STDIN_FILENO, ignored, sizeof(ignored)) <= 0;
}

int Watch(const std::vector<Engine>& engines) {
  const std::vector<std::string> packets = Schedstats("/proc", "ksoftirqd/");
  while (!InputEnded()) {
    {
      const std::lock_guard lock(output);
      std::int64_t waited = 0;
      for (const std::string& schedstat : packets) waited += WaitedNanos(schedstat);
      std::printf("R %" PRId64 " %" PRId64, Nanos(CLOCK_MONOTONIC), waited);
      for (const Engine& engine : engines) {
        std::printf(" %" PRId64 " %" PRId64, engine.waited(), engine.used());
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
  std::vector<ringd::Engine> engines;
  for (int i = 1; i < count; ++i) {
    engines.emplace_back(std::atoi(arguments[i]));
    if (!engines.back().found()) {
      std::fprintf(stderr, "soak_processors: %s has no engine\n", arguments[i]);
      return 1;
    }
  }
  cpu_set_t usable;
  CPU_ZERO(&usable);
  ::sched_getaffinity(0, sizeof(usable), &usable);
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (CPU_ISSET(processor, &usable)) std::thread(ringd::WatchProcessor, processor).detach();
  }
  ::_exit(ringd::Watch(engines));
}
