// How many descriptors this process has open, for tests of what is left behind.
#ifndef RINGD_TESTS_COUNT_DESCRIPTORS_H_
#define RINGD_TESTS_COUNT_DESCRIPTORS_H_

#include <dirent.h>

#include <cstddef>

namespace ringd {

// The one that reads the list is among them, each time.
inline std::size_t CountDescriptors() {
  DIR* const folder = ::opendir("/proc/self/fd");
  std::size_t count = 0;
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

}  // namespace ringd

#endif  // RINGD_TESTS_COUNT_DESCRIPTORS_H_
