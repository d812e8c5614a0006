#include "client/cli/query/query_command.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/cli/query/admin_client.h"
#include "client/cli/query/exit_code.h"
#include "client/cli/query/failure_report.h"
#include "client/cli/query/private_ringds.h"
#include "client/cli/query/standard_output.h"
#include "client/cli/views/json_output.h"
#include "client/cli/views/plan_view.h"
#include "client/cli/views/view_parts.h"
#include "client/cli/views/views.h"

namespace ringd::cli {
namespace {

// ringd asks the vendors' libraries, for half a minute at most.
constexpr std::chrono::seconds kGpusTimeout{40};

// Whether standard output may have colours: no-color.org.
bool WantColours() {
  const char* no_colour = std::getenv("NO_COLOR");
  return ::isatty(STDOUT_FILENO) == 1 && (no_colour == nullptr || *no_colour == '\0');
}

// The columns that text has to fit; 0: any number. Programs that read through a pipe look for whole
// names. A narrow terminal gets the lines of one of the usual size.
std::size_t WidthOfOutput() {
  constexpr std::size_t kUsualWidth = 80;
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return std::max<std::size_t>(kUsualWidth, size.ws_col);
}

struct Presentation {
  bool json;
  bool one_line;
  Look look;
};

// For standard output, and for standard error.
struct Presented {
  std::string text;
  std::string warnings;
  bool is_found = true;  // not an empty list of one job, or for which an engine has not answered
};

const auto& RowsOf(const v1::JobsReply& reply) { return reply.jobs(); }
const auto& RowsOf(const v1::CommunicatorsReply& reply) { return reply.communicators(); }
const auto& RowsOf(const v1::QueuesReply& reply) { return reply.queues(); }

// Of a list.
template <typename Reply>
bool IsKnown(const Reply& reply) {
  return !RowsOf(reply).empty() || reply.unanswered().empty();
}
template <typename Reply>
bool IsFound(const Reply& reply, const QueryOptions& options) {
  return !RowsOf(reply).empty() || (options.job_id.empty() && IsKnown(reply));
}

template <typename Reply, typename Render>
absl::StatusOr<Presented> Present(const absl::StatusOr<Reply>& reply, const Render& render,
                                  const QueryOptions& options, const Presentation& presentation) {
  if (!reply.ok()) return reply.status();
  Presented presented;
  if constexpr (requires { reply->unanswered(); }) presented.is_found = IsFound(*reply, options);
  if (presentation.json) {
    presented.text = ToJson(*reply, presentation.one_line);
    return presented;
  }
  presented.text = render(*reply, presentation.look);
  if constexpr (requires { reply->hidden_jobs(); }) {
    absl::StrAppend(&presented.text, RenderHiddenJobs(reply->hidden_jobs()));
  }
  if constexpr (requires { reply->unanswered(); }) {
    presented.warnings = RenderUnanswered(reply->unanswered());
  }
  return presented;
}

// What `render` makes of the rows; or that there are none, which nobody knows if an engine has kept
// silent.
template <typename Reply, typename Render>
std::string RenderRows(const QueryOptions& options, absl::string_view what, const Reply& reply,
                       const Render& render) {
  if (!IsKnown(reply)) return NothingHeard(reply.unanswered_size());
  if (!RowsOf(reply).empty()) return render();
  const std::string elsewhere = DescribePrivateRingds(ChooseSocket(options.socket));
  return absl::StrCat(options.job_id.empty() ? render() : NothingOfJob(what, options.job_id),
                      elsewhere, elsewhere.empty() ? "" : "\n");
}

absl::StatusOr<Presented> Ask(AdminClient& client, const QueryOptions& options,
                              const Presentation& how) {
  const Clock::time_point deadline = Clock::now() + kQueryTimeout;
  switch (options.query) {
    case Query::kStatus:
      return Present(client.GetStatus(deadline), &RenderStatus, options, how);
    case Query::kGpus:
      return Present(client.GetGpus(Clock::now() + kGpusTimeout), &RenderGpus, options, how);
    case Query::kJobs:
      return Present(
          client.ListJobs(options.job_id, options.ended, deadline),
          [&](const v1::JobsReply& reply, const Look& look) {
            return RenderRows(options, "ranks", reply,
                              [&] { return RenderJobs(reply, options.ended, look); });
          },
          options, how);
    case Query::kCommunicators:
      return Present(
          client.ListCommunicators(options.job_id, deadline),
          [&](const v1::CommunicatorsReply& reply, const Look& look) {
            return RenderRows(options, "communicators", reply, [&] {
              return options.plan ? RenderPlans(reply, look) : RenderCommunicators(reply, look);
            });
          },
          options, how);
    case Query::kQueues:
      return Present(
          client.ListQueues(options.job_id, deadline),
          [&](const v1::QueuesReply& reply, const Look& look) {
            return RenderRows(options, "ranks", reply, [&] { return RenderQueues(reply, look); });
          },
          options, how);
  }
  return absl::InternalError("no such query");
}

}  // namespace

std::string ChooseSocket(const std::string& asked_for) {
  if (!asked_for.empty()) return asked_for;
  const char* variable = std::getenv("RINGD_SOCKET");
  return variable != nullptr && *variable != '\0' ? variable : kDefaultSocket;
}

int QueryCommand(const QueryOptions& options) {
  const std::string socket = ChooseSocket(options.socket);
  absl::StatusOr<std::unique_ptr<AdminClient>> client =
      AdminClient::Connect(socket, Clock::now() + kQueryTimeout);
  if (!client.ok()) return ReportFailure(socket, client.status(), true);
  const bool watch = options.watch_seconds > 0;
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  for (;;) {
    const Presentation how{
        options.json, watch, {WantColours(), options.wide ? 0 : WidthOfOutput()}};
    const absl::StatusOr<Presented> answer = Ask(**client, options, how);
    if (!answer.ok()) return ReportFailure(socket, answer.status(), IsUnreachable(answer.status()));
    std::string text = answer->text;
    // From the top of an empty screen, as watch(1) does.
    if (watch && terminal && !options.json) text.insert(0, "\x1b[H\x1b[2J");
    if (watch && !terminal && !options.json) text += "\n";
    if (const int code = Print(text); code != kDone) return code;
    std::fputs(answer->warnings.c_str(), stderr);
    if (!watch) return answer->is_found ? kDone : kFailed;
    std::this_thread::sleep_for(std::chrono::duration<double>(options.watch_seconds));
  }
}

}  // namespace ringd::cli
