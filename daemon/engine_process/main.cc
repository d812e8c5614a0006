// ringd-engine: what serves one job of this node. ringd starts it and tells it all that it does,
// through descriptor 3 (daemon/channel); it ends with its job, or with ringd.
//
// Exit codes: daemon/service/exit_code.h; kExitUsage also if it was started by somebody else.
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "backends/cuda/cuda_context.h"
#include "backends/nccl/nccl_communicator.h"
#include "daemon/engine_process/engine_service.h"
#include "daemon/engine_process/walls.h"
#include "daemon/logging/log.h"
#include "daemon/logging/log_setup.h"
#include "daemon/processes/spawn.h"
#include "daemon/service/exit_code.h"
#include "daemon/supervisor/engine_process.h"
#include "daemon/version.h"
#include "proto/base/build_id.h"

namespace ringd {
namespace {

constexpr auto kBeat = std::chrono::seconds(1);

constexpr char kHelp[] =
    "ringd-engine serves one job. ringd starts it, one for each job of this node;\n"
    "there is nothing to be done with it by hand.\n"
    "\n"
    "  --one-user               nobody but the user who runs it, and root, may attach\n"
    "  --library PATH           a library that it may open\n"
    "  --nccl-interfaces NAMES  what NCCL's connections may use\n"
    "  --version                print the version\n"
    "  --help                   print this\n";

int Serve(WallOptions walls) {
  int domain = 0;
  socklen_t length = sizeof(domain);
  if (::getsockopt(EngineProcess::kChannelDescriptor, SOL_SOCKET, SO_DOMAIN, &domain, &length) !=
          0 ||
      domain != AF_UNIX) {
    std::fprintf(stderr, "ringd-engine is started by ringd; see --help\n");
    return kExitUsage;
  }
  walls.channel = EngineProcess::kChannelDescriptor;
  const absl::StatusOr<std::vector<std::string>> missing = PutUpWalls(walls);
  StartEngineLogging("info");
  if (!missing.ok()) {
    LogError(missing.status().message());
    return kExitFailed;
  }
  EngineService service(*missing);
  if (absl::Status status = service.Open(UniqueFd(EngineProcess::kChannelDescriptor));
      !status.ok()) {
    LogError(status.message());
    return kExitFailed;
  }
  while (!service.Wait(kBeat)) service.Beat();
  service.Stop();
  return kExitDone;
}

}  // namespace
}  // namespace ringd

int main(int argc, char** argv) {
  // ringd has started it by this descriptor, which has given it its name, too.
  ::close(ringd::kProgramDescriptor);
  ::prctl(PR_SET_NAME, "ringd-engine", 0, 0, 0);
  const absl::string_view argument = argc > 1 ? argv[1] : "";
  if (argument == "--version") {
    std::printf("ringd-engine %s\n", ringd::VersionAndBuild(ringd::kRingdVersion).c_str());
    return ringd::kExitDone;
  }
  if (argument == "--help") {
    std::fputs(ringd::kHelp, stdout);
    return ringd::kExitDone;
  }
  ringd::WallOptions walls;
  std::string nccl_interfaces;
  for (int i = 1; i < argc; ++i) {
    if (argv[i] == absl::string_view(ringd::kOneUserArgument)) {
      walls.shut_out_files = false;
    } else if (argv[i] == absl::string_view(ringd::kLibraryArgument) && i + 1 < argc) {
      walls.libraries.emplace_back(argv[++i]);
    } else if (argv[i] == absl::string_view(ringd::kNcclInterfacesArgument) && i + 1 < argc) {
      nccl_interfaces = argv[++i];
    } else {
      std::fprintf(stderr, "ringd-engine: unknown argument '%s'; see --help\n", argv[i]);
      return ringd::kExitUsage;
    }
  }
  ringd::SetCudaEnvironment();
  ringd::SetNcclEnvironment(nccl_interfaces);
  return ringd::Serve(std::move(walls));
}
