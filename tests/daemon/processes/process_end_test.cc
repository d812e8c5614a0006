#include "daemon/processes/process_end.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>

namespace ringd {
namespace {

// How a child ended that does this.
template <typename Body>
ProcessExit ExitOf(Body body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    body();
    ::_exit(100);
  }
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  return DecodeWaitStatus(status);
}

TEST_CASE("DescribeExit: says the code, or the signal by number and name") {
  CHECK(DescribeExit(ExitOf([] { ::_exit(0); })) == "exited with code 0");
  CHECK(DescribeExit(ExitOf([] { ::_exit(7); })) == "exited with code 7");
  CHECK(DescribeExit(ExitOf([] { ::raise(SIGKILL); })) == "was killed by signal 9 (Killed)");
}

}  // namespace
}  // namespace ringd
