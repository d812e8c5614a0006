#include "client/cli/query/version_command.h"

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/cli/query/admin_client.h"
#include "client/cli/query/exit_code.h"
#include "client/cli/query/query_command.h"
#include "client/cli/query/standard_output.h"
#include "client/core/attach/library_version.h"

namespace ringd::cli {
namespace {

// Empty if none answers.
v1::StatusReply AskDaemon(const std::string& socket) {
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(2);
  absl::StatusOr<std::unique_ptr<AdminClient>> client = AdminClient::Connect(socket, deadline);
  if (!client.ok()) return {};
  return (*client)->GetStatus(deadline).value_or(v1::StatusReply());
}

}  // namespace

int VersionCommand(const std::string& asked_for, bool json) {
  const std::string socket = ChooseSocket(asked_for);
  const v1::StatusReply daemon = AskDaemon(socket);
  if (json) {
    const nlohmann::ordered_json versions = {{"schema_version", 1},
                                             {"ringctl", client::kLibraryVersion},
                                             {"ringd", daemon.version()},
                                             {"ringd_build", daemon.build()}};
    return Print(versions.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  }
  return Print(absl::StrCat("ringctl ", client::kLibraryVersion, "\n",
                            daemon.version().empty()
                                ? absl::StrCat("no ringd answers at ", socket, "\n")
                                : absl::StrCat("ringd ", daemon.version(), " (build ",
                                               daemon.build(), ") at ", socket, "\n")));
}

}  // namespace ringd::cli
