#include "client/cli/query/drain_command.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/cli/query/admin_client.h"
#include "client/cli/query/exit_code.h"
#include "client/cli/query/failure_report.h"
#include "client/cli/query/query_command.h"
#include "client/cli/query/standard_output.h"
#include "client/cli/views/json_output.h"
#include "client/cli/views/view_parts.h"
#include "client/cli/views/views.h"

namespace ringd::cli {
namespace {

constexpr std::chrono::milliseconds kLook{200};

absl::StatusOr<v1::DrainReply> Ask(AdminClient& client, bool undo) {
  absl::StatusOr<v1::DrainReply> reply = client.Drain(undo, Clock::now() + kQueryTimeout);
  if (!absl::IsUnimplemented(reply.status())) return reply;
  return absl::UnimplementedError(
      "this ringd is an older one, which drains only when it is told to end (systemctl stop)");
}

// Until no trainer is attached; how it is then.
absl::StatusOr<v1::DrainReply> AwaitEmpty(AdminClient& client, v1::DrainReply reply,
                                          double wait_seconds) {
  const Clock::time_point deadline =
      Clock::now() +
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(wait_seconds));
  bool ending = false;
  while (reply.sessions() > 0) {
    const absl::StatusOr<v1::StatusReply> status = client.GetStatus(Clock::now() + kQueryTimeout);
    // It ends when the last one has gone, and has done so.
    if (ending && absl::IsUnavailable(status.status())) {
      reply.set_sessions(0);
      reply.set_jobs(0);
      return reply;
    }
    if (!status.ok()) return status.status();
    ending = status->ending();
    reply.set_state(status->state());
    reply.set_sessions(status->sessions());
    reply.set_jobs(status->jobs());
    if (status->state() != "draining") {
      return absl::AbortedError(
          absl::StrCat(reply.node_name(), " takes new jobs again: somebody has undone the drain"));
    }
    if (reply.sessions() == 0) break;
    const Clock::time_point now = Clock::now();
    if (now >= deadline) {
      return absl::AbortedError(absl::StrCat(
          reply.node_name(), " drains, and ", Count(reply.sessions(), "trainer is", "trainers are"),
          " still attached after ", wait_seconds, " s (ringctl jobs shows whose)"));
    }
    std::this_thread::sleep_for(std::min<Clock::duration>(kLook, deadline - now));
  }
  return reply;
}

}  // namespace

int DrainCommand(const DrainOptions& options) {
  const std::string socket = ChooseSocket(options.socket);
  absl::StatusOr<std::unique_ptr<AdminClient>> client =
      AdminClient::Connect(socket, Clock::now() + kQueryTimeout);
  if (!client.ok()) return ReportFailure(socket, client.status(), true);
  absl::StatusOr<v1::DrainReply> reply = Ask(**client, options.undo);
  if (reply.ok() && !options.undo && options.wait_seconds > 0) {
    reply = AwaitEmpty(**client, *std::move(reply), options.wait_seconds);
  }
  if (!reply.ok()) return ReportFailure(socket, reply.status(), IsUnreachable(reply.status()));
  return Print(options.json ? ToJson(*reply, false) : RenderDrain(*reply));
}

}  // namespace ringd::cli
