// What a test's process costs while it should do nothing.
#ifndef RINGD_TESTS_PROCESSOR_SECONDS_H_
#define RINGD_TESTS_PROCESSOR_SECONDS_H_

#include <poll.h>
#include <time.h>

#include <chrono>

namespace ringd {

// The processor time that all of this process's threads take in `time`. Blocks for so long.
inline double ProcessorSecondsIn(std::chrono::milliseconds time) {
  timespec before{}, after{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  ::poll(nullptr, 0, static_cast<int>(time.count()));
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  return static_cast<double>(after.tv_sec - before.tv_sec) +
         static_cast<double>(after.tv_nsec - before.tv_nsec) / 1e9;
}

}  // namespace ringd

#endif  // RINGD_TESTS_PROCESSOR_SECONDS_H_
