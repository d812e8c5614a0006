// ringd-engine: what serves one job of this node. ringd starts it and tells it all that it does,
// through descriptor 3 (daemon/channel); it ends with its job, or with ringd.
//
// Exit codes: 0 it was told to end, or ringd has gone; 1 it could not begin; 2 it was started by
// somebody else.
#include <sys/socket.h>

#include <cstdio>
#include <string>

#include "absl/strings/string_view.h"
#include "daemon/engine_process/engine_service.h"
#include "daemon/engine_process/walls.h"
#include "daemon/logging/log.h"
#include "daemon/logging/log_setup.h"
#include "daemon/supervisor/engine_process.h"
#include "daemon/version.h"

namespace ringd {
namespace {

constexpr auto kBeat = std::chrono::seconds(1);

constexpr char kHelp[] =
    "ringd-engine serves one job. ringd starts it, one for each job of this node;\n"
    "there is nothing to be done with it by hand.\n"
    "\n"
    "  --version  print the version\n"
    "  --help     print this\n";

int Serve() {
  int domain = 0;
  socklen_t length = sizeof(domain);
  if (::getsockopt(EngineProcess::kChannelDescriptor, SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0 ||
      domain != AF_UNIX) {
    std::fprintf(stderr, "ringd-engine is started by ringd; see --help\n");
    return 2;
  }
  PutUpWalls();
  StartEngineLogging("info");
  EngineService service;
  if (absl::Status status = service.Open(UniqueFd(EngineProcess::kChannelDescriptor));
      !status.ok()) {
    LogError(status.message());
    return 1;
  }
  while (!service.Wait(kBeat)) service.Beat();
  service.Stop();
  return 0;
}

}  // namespace
}  // namespace ringd

int main(int argc, char** argv) {
  const absl::string_view argument = argc > 1 ? argv[1] : "";
  if (argument == "--version") {
    std::printf("ringd-engine %s\n", ringd::kRingdVersion);
    return 0;
  }
  if (argument == "--help") {
    std::fputs(ringd::kHelp, stdout);
    return 0;
  }
  if (!argument.empty()) {
    std::fprintf(stderr, "ringd-engine: unknown argument '%s'; see --help\n", argv[1]);
    return 2;
  }
  return ringd::Serve();
}
