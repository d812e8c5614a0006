// How long a thread has waited for a processor, as the kernel counts it (CONFIG_SCHED_INFO).
#ifndef RINGD_TESTS_SOAK_PROGRAMS_THREAD_WAIT_H_
#define RINGD_TESTS_SOAK_PROGRAMS_THREAD_WAIT_H_

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace ringd::soak {

inline std::int64_t NowNanos() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

inline void SleepUntil(std::int64_t ns) {
  const timespec until{ns / 1'000'000'000, ns % 1'000'000'000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) continue;
}

// Of the thread that has called first, so far, in ns: the second number of schedstat.
inline std::int64_t WaitedNanos() {
  static const int file = ::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  char text[64];
  const ssize_t length = ::pread(file, text, sizeof(text) - 1, 0);
  if (length <= 0) return 0;
  text[length] = '\0';
  const char* const space = std::strchr(text, ' ');
  return space == nullptr ? 0 : std::atoll(space);
}

}  // namespace ringd::soak

#endif  // RINGD_TESTS_SOAK_PROGRAMS_THREAD_WAIT_H_
