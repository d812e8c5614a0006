// ringd-engine: serves one job on this node; ringd starts it.
#include <cstdio>
#include <string_view>

#include "daemon/service/exit_code.h"
#include "daemon/version.h"

int main(int argc, char** argv) {
  const std::string_view asked = argc == 2 ? argv[1] : "";
  if (asked == "--version") {
    std::printf("ringd-engine %s\n", ringd::kRingdVersion);
    return ringd::kExitDone;
  }
  if (asked == "--help") {
    std::fputs(
        "ringd-engine serves one job on this node. It has no settings of its own and is started "
        "by ringd alone.\n",
        stdout);
    return ringd::kExitDone;
  }
  std::fputs("ringd-engine: is started by ringd alone\n", stderr);
  return ringd::kExitUsage;
}
