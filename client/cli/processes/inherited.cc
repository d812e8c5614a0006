#include "client/cli/processes/inherited.h"

#include <fcntl.h>
#include <unistd.h>

namespace ringd::cli {

void FillStandardStreams() noexcept {
  // open() takes the lowest number that is free.
  int fd = 0;
  do {
    fd = ::open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) ::close(fd);
}

rlimit RaiseDescriptorLimit() noexcept {
  rlimit former{};
  ::getrlimit(RLIMIT_NOFILE, &former);
  rlimit raised = former;
  raised.rlim_cur = raised.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &raised);
  return former;
}

}  // namespace ringd::cli
