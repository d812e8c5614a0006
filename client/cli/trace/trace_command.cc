#include "client/cli/trace/trace_command.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/query/admin_client.h"
#include "client/cli/query/exit_code.h"
#include "client/cli/query/failure_report.h"
#include "client/cli/query/query_command.h"
#include "client/cli/query/standard_output.h"
#include "client/cli/trace/chrome_trace.h"
#include "client/cli/trace/new_file.h"
#include "client/cli/trace/trace_record.h"
#include "client/cli/trace/trace_timeline.h"
#include "client/cli/views/human_units.h"
#include "client/cli/views/suggestion.h"
#include "proto/base/text.h"
#include "proto/shm/job_segment.h"

namespace ringd::cli {
namespace {

// ringd answers after its next tick, so this is not how often it is asked.
constexpr std::chrono::milliseconds kBetweenCalls{50};
// What was left behind is fetched when the time is up, but not for ever from a job that never
// rests.
constexpr int kLastCalls = 8;

constexpr std::array<int, 3> kStopSignals{SIGINT, SIGTERM, SIGHUP};

volatile sig_atomic_t interrupted = 0;  // by this signal
// What the second one removes; empty: nothing.
std::array<char, PATH_MAX> unfinished{};

void OnStopSignal(int signal) {
  if (interrupted != 0) {
    ::unlink(unfinished.data());
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }
  interrupted = signal;
}

// While this lives the first signal says that it has been long enough, and the second one ends
// ringctl at once.
class StopSignals {
 public:
  StopSignals() {
    interrupted = 0;
    struct sigaction action {};
    action.sa_handler = OnStopSignal;
    for (std::size_t i = 0; i < kStopSignals.size(); ++i) {
      ::sigaction(kStopSignals[i], &action, &old_[i]);
      // As under nohup.
      if (old_[i].sa_handler == SIG_IGN) ::sigaction(kStopSignals[i], &old_[i], nullptr);
    }
  }
  ~StopSignals() {
    for (std::size_t i = 0; i < kStopSignals.size(); ++i) {
      ::sigaction(kStopSignals[i], &old_[i], nullptr);
    }
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  static void Unfinished(const std::string& file) {
    if (file.size() < unfinished.size()) std::strcpy(unfinished.data(), file.c_str());
  }

 private:
  std::array<struct sigaction, kStopSignals.size()> old_{};
};

// One line on a terminal, which is written over.
class Progress {
 public:
  Progress() : shown_(::isatty(STDERR_FILENO) == 1) {}
  ~Progress() {
    if (shown_) std::fputs("\r\x1b[K", stderr);
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Show(double passed, double of, std::size_t events) const {
    if (!shown_) return;
    std::fprintf(stderr, "\r\x1b[Ktracing: %.0f of %.0f s, %s events (Ctrl-C ends it)", passed, of,
                 HumanCount(events).c_str());
  }

 private:
  const bool shown_;
};

absl::StatusOr<v1::TraceReply> Ask(AdminClient& client, const TraceRecord& record,
                                   const TraceOptions& options) {
  v1::TraceRequest request = record.NextRequest();
  request.set_job_id(options.job_id);
  return client.TraceJob(request, Clock::now() + kQueryTimeout);
}

// Why the job ended before the time was up; empty: it did not.
absl::StatusOr<std::string> Record(AdminClient& client, const TraceOptions& options,
                                   TraceRecord& record) {
  const Progress progress;
  Clock::time_point begin = Clock::now();
  int last_calls = 0;
  for (;;) {
    absl::StatusOr<v1::TraceReply> reply = Ask(client, record, options);
    if (!reply.ok()) {
      if (record.nodes().empty()) return reply.status();
      return std::string(reply.status().message());
    }
    if (record.nodes().empty() && options.seconds > 0) begin = Clock::now();
    record.Add(*reply);
    const std::chrono::duration<double> passed = Clock::now() - begin;
    progress.Show(passed.count(), options.seconds, record.event_count());
    const bool time_is_up = interrupted != 0 || passed.count() >= options.seconds;
    if (record.full()) {
      return absl::StrCat("it has ", record.event_count(), " events, as many as are kept");
    }
    if (time_is_up && (!record.more() || ++last_calls >= kLastCalls)) return std::string();
    if (!record.more()) std::this_thread::sleep_for(kBetweenCalls);
  }
}

// The ids of the jobs that the caller may see.
//   kFailedPrecondition: none is known, since engines that might tell have not answered.
//   Others: as the call.
absl::StatusOr<std::vector<std::string>> KnownJobs(AdminClient& client) {
  const absl::StatusOr<v1::JobsReply> jobs =
      client.ListJobs("", /*ended=*/false, Clock::now() + kQueryTimeout);
  if (!jobs.ok()) return jobs.status();
  std::vector<std::string> known;
  for (const v1::Job& job : jobs->jobs()) known.push_back(job.job_id());
  if (known.empty() && !jobs->unanswered().empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("no job is known: ", absl::StrJoin(jobs->unanswered(), "; ")));
  }
  return known;
}

// "; did you mean train?", or what there is.
std::string Hint(const std::string& job_id, const absl::StatusOr<std::vector<std::string>>& known) {
  if (!known.ok()) return absl::StrCat("; others: ", known.status().message());
  if (known->empty()) return "; there is none at all";
  const std::string meant = Suggestion(job_id, *known);
  return meant.empty() ? absl::StrCat("; there is ", absl::StrJoin(*known, ", "))
                       : absl::StrCat("; did you mean ", meant, "?");
}

// Names the job in `options` if nobody has.
absl::Status ChooseJob(AdminClient& client, TraceOptions& options) {
  if (!options.job_id.empty()) return absl::OkStatus();
  const absl::StatusOr<std::vector<std::string>> known = KnownJobs(client);
  if (!known.ok()) return known.status();
  if (known->empty()) {
    return absl::NotFoundError("no job of yours has ranks on this node");
  }
  if (known->size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("which job? Say --job with one of ", absl::StrJoin(*known, ", ")));
  }
  options.job_id = known->front();
  return absl::OkStatus();
}

// What the reader of the file should know.
std::vector<std::string> Warnings(const TraceRecord& record, const std::string& ended) {
  std::vector<std::string> warnings;
  if (!ended.empty()) warnings.push_back(absl::StrCat("ended early: ", ended));
  for (const RecordedNode& node : record.nodes()) {
    if (!node.answered) {
      warnings.push_back(absl::StrCat("nothing has come from ", node.name));
    } else if (!node.clock_known) {
      warnings.push_back(absl::StrCat("the clock of ", node.name,
                                      " could not be compared: its times stand for themselves"));
    }
    if (node.answered && node.behind) {
      warnings.push_back(absl::StrCat(
          "not all that ", node.name,
          " had noted could be read in time: the last operations are missing, or not whole"));
    }
    if (node.lost > 0) {
      warnings.push_back(
          absl::StrCat(HumanCount(node.lost), " events of ", node.name,
                       " were overwritten before they could be read: operations are missing"));
    }
  }
  return warnings;
}

// kDone, or kFailed if it can't be told.
int Tell(const TraceOptions& options, const TraceRecord& record, const Timeline& timeline,
         const std::vector<std::string>& warnings) {
  std::uint64_t uncertainty_ns = 0;
  for (const RecordedNode& node : record.nodes()) {
    uncertainty_ns = std::max(uncertainty_ns, record.UncertaintyOf(node));
  }
  if (options.json) {
    const nlohmann::ordered_json summary = {
        {"job_id", record.job_id()},
        {"file", options.out},
        {"seconds", static_cast<double>(record.end_ns() - record.begin_ns()) / 1e9},
        {"nodes", record.nodes().size()},
        {"operations", timeline.operations},
        {"events", record.event_count()},
        {"clock_uncertainty_us", static_cast<double>(uncertainty_ns) / 1000},
        {"warnings", warnings}};
    return Print(summary.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  }
  for (const std::string& warning : warnings) {
    std::fprintf(stderr, "ringctl: %s\n", CleanLine(warning).c_str());
  }
  const bool on_one_node = record.nodes().size() == 1;
  const std::string clocks = on_one_node ? ""
                                         : absl::StrCat("; the nodes' clocks agree within ",
                                                        uncertainty_ns / 1000 + 1, " us");
  std::fprintf(stderr,
               "%s: %s operations of ranks%s. Open it at ui.perfetto.dev or chrome://tracing\n",
               IsStandardOutput(options.out) ? "written" : options.out.c_str(),
               HumanCount(timeline.operations).c_str(), clocks.c_str());
  if (on_one_node) {
    std::fprintf(
        stderr, "Not in it: operations of %zu bytes or less, which ranks on one node do not note\n",
        kInlineBytes);
  }
  return kDone;
}

}  // namespace

int TraceCommand(TraceOptions options) {
  const StopSignals signals;
  // What can't be written is told before the wait, not after it.
  absl::StatusOr<std::unique_ptr<NewFile>> file = NewFile::Create(options.out);
  const std::string socket = ChooseSocket(options.socket);
  if (!file.ok()) return ReportFailure(socket, file.status(), false);
  StopSignals::Unfinished((*file)->temporary());
  absl::StatusOr<std::unique_ptr<AdminClient>> client =
      AdminClient::Connect(socket, Clock::now() + kQueryTimeout);
  if (!client.ok()) return ReportFailure(socket, client.status(), true);
  if (absl::Status status = ChooseJob(**client, options); !status.ok()) {
    return ReportFailure(socket, status, IsUnreachable(status));
  }
  if (interrupted != 0) return kSignalBase + interrupted;
  TraceRecord record;
  absl::StatusOr<std::string> ended = Record(**client, options, record);
  if (absl::IsNotFound(ended.status())) {
    ended = absl::NotFoundError(
        absl::StrCat(ended.status().message(), Hint(options.job_id, KnownJobs(**client))));
  }
  if (!ended.ok()) return ReportFailure(socket, ended.status(), IsUnreachable(ended.status()));
  record.CutAtEnd();
  const Timeline timeline = BuildTimeline(record);
  WriteChromeTrace(record, timeline, [&](absl::string_view text) { (*file)->Write(text); });
  if (absl::Status status = (*file)->Commit(); !status.ok()) {
    return ReportFailure(socket, status, false);
  }
  return Tell(options, record, timeline, Warnings(record, *ended));
}

}  // namespace ringd::cli
