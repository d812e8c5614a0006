#include "client/cli/run/run_command.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client/cli/processes/guardian.h"
#include "client/cli/processes/inherited.h"
#include "client/cli/processes/output_sink.h"
#include "client/cli/processes/signals.h"
#include "client/cli/processes/supervisor.h"
#include "client/cli/query/admin_client.h"
#include "client/cli/query/exit_code.h"
#include "client/cli/query/private_ringds.h"
#include "client/cli/query/query_command.h"
#include "client/cli/run/job_environment.h"
#include "client/cli/run/made_folders.h"
#include "client/cli/run/private_daemon.h"
#include "client/cli/run/run_summary.h"
#include "proto/base/errno_status.h"
#include "proto/base/write_all.h"

namespace ringd::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kDaemonStartTimeout{30};
constexpr seconds kDaemonStopTimeout{3};
constexpr seconds kCallTimeout{2};
constexpr seconds kReportPatience{2};

milliseconds Milliseconds(double in_seconds) {
  return std::chrono::duration_cast<milliseconds>(std::chrono::duration<double>(in_seconds));
}

// To standard error, as far as somebody reads it: who lets the run's output stand must not keep
// ringctl, and the ringds that it is to stop.
void Say(absl::string_view text) {
  const Clock::time_point deadline = Clock::now() + kReportPatience;
  OutputSink(STDERR_FILENO, -1, [deadline] { return Clock::now() < deadline; }).Write(text);
}

// `bytes` unpredictable bytes as hexadecimal digits.
std::string RandomDigits(std::size_t bytes) {
  std::string random(bytes, '\0');
  // Up to 256 bytes come in one piece.
  if (::getrandom(random.data(), bytes, 0) != static_cast<ssize_t>(bytes)) std::abort();
  return absl::BytesToHexString(random);
}

// A TCP port that nobody has at the moment, for what the ranks may want to serve themselves.
absl::StatusOr<int> FreePort() {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(socket.get(), generic, length) != 0 ||
      ::getsockname(socket.get(), generic, &length) != 0) {
    return ErrnoStatus(errno, "find a free port");
  }
  return ntohs(address.sin_port);
}

std::string StateFolder(const RunOptions& options, int node) {
  return absl::StrCat(options.state_folder, "/node-", node);
}

// A key that only the ringds of this run have.
absl::Status WriteClusterKey(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const int error = file.valid() ? WriteAll(file.get(), RandomDigits(32)) : errno;
  return error == 0 ? absl::OkStatus() : ErrnoStatus(error, absl::StrCat("write ", path));
}

// The ringds of a run that are its own, and their folder.
//
// Ownership: the destructor stops them all and removes the folder unless it is kept.
class PrivateNodes {
 public:
  PrivateNodes(Guardian& guardian, bool keep) : guardian_(guardian), keep_(keep) {}

  ~PrivateNodes() {
    const Clock::time_point deadline = Clock::now() + kDaemonStopTimeout;
    for (const auto& daemon : daemons_) daemon->RequestStop();
    for (const auto& daemon : daemons_) {
      daemon->Stop(deadline);
      guardian_.ForgetGroup(daemon->pid());
    }
    if (folder_.empty()) return;
    if (keep_) {
      Say(absl::StrCat("ringctl: kept ", folder_, "\n"));
    } else {
      std::error_code ignored;
      std::filesystem::remove_all(folder_, ignored);
    }
    guardian_.ForgetFolder(folder_);
  }

  // options.nodes ringds; 0: one, with the host's name.
  absl::Status Start(const RunOptions& options) {
    const absl::StatusOr<std::string> binary = FindDaemonBinary(options.ringd_binary);
    if (!binary.ok()) return binary.status();
    std::string folder = absl::StrCat(kPrivateParent, "/", kPrivateName);
    if (::mkdtemp(folder.data()) == nullptr) return ErrnoStatus(errno, "make a folder in /tmp");
    folder_ = folder;
    if (!keep_) guardian_.WatchFolder(folder_);
    const std::string key_file = absl::StrCat(folder_, "/cluster.key");
    if (absl::Status status = WriteClusterKey(key_file); !status.ok()) return status;
    for (int node = 0; node < std::max(options.nodes, 1); ++node) {
      PrivateDaemonOptions daemon;
      daemon.binary = *binary;
      daemon.ranks = options.ranks_per_node;
      daemon.cluster_key_file = key_file;
      daemon.folder = absl::StrCat(folder_, "/", node);
      if (options.nodes > 0) daemon.node_name = absl::StrCat("node-", node);
      const std::string& logs = options.log_folder.empty() ? folder_ : options.log_folder;
      daemon.log_file = absl::StrCat(logs, "/ringd-", node, ".log");
      daemon.state_folder = options.state_folder.empty() ? absl::StrCat(daemon.folder, "/state")
                                                         : StateFolder(options, node);
      for (const std::string& needed : {daemon.folder, daemon.state_folder}) {
        std::error_code error;
        std::filesystem::create_directories(needed, error);
        if (error) return absl::InternalError(absl::StrCat(needed, ": ", error.message()));
      }
      absl::StatusOr<std::unique_ptr<PrivateDaemon>> started = PrivateDaemon::Start(daemon);
      if (!started.ok()) return started.status();
      guardian_.WatchGroup((*started)->pid());
      daemons_.push_back(*std::move(started));
    }
    const Clock::time_point deadline = Clock::now() + kDaemonStartTimeout;
    for (const auto& daemon : daemons_) {
      absl::Status status = daemon->WaitUntilReady(deadline, [] { return PendingSignal() != 0; });
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  std::vector<NodeAddress> Addresses() const {
    std::vector<NodeAddress> addresses;
    for (const auto& daemon : daemons_) {
      addresses.push_back({daemon->socket(), daemon->peer_address()});
    }
    return addresses;
  }

  // What to say about ringds that did not live as long as the run.
  std::string DescribeDead() const {
    std::string text;
    for (const auto& daemon : daemons_) {
      if (const std::optional<ProcessEnd> end = daemon->Ended(); end.has_value()) {
        absl::StrAppend(&text, "ringctl: ", daemon->name(), " (pid ", daemon->pid(), ") ",
                        Describe(*end), "; its last words:\n", daemon->LogTail());
      }
    }
    return text;
  }

 private:
  Guardian& guardian_;
  const bool keep_;
  std::string folder_;
  std::vector<std::unique_ptr<PrivateDaemon>> daemons_;
};

// The node's own ringd, if one answers and takes new jobs.
absl::StatusOr<NodeAddress> RunningDaemon(const std::string& socket) {
  const Clock::time_point deadline = Clock::now() + kCallTimeout;
  absl::StatusOr<std::unique_ptr<AdminClient>> client = AdminClient::Connect(socket, deadline);
  if (!client.ok()) return client.status();
  const absl::StatusOr<v1::StatusReply> status = (*client)->GetStatus(deadline);
  if (!status.ok()) return status.status();
  if (status->state() != "serving") {
    return absl::UnavailableError(absl::StrCat("it is ", status->state()));
  }
  return NodeAddress{socket, status->peer_address()};
}

// The folder that an option names. The result is kDone, or what to end with.
int ProvideFolder(absl::string_view option, const std::string& folder, MadeFolders& folders) {
  const absl::Status status = folders.Make(folder);
  if (status.ok()) return kDone;
  std::fprintf(stderr, "ringctl: %s\n", absl::StrCat(option, ": ", status.message()).c_str());
  return kUsage;
}

// The options that are for private ringds, where the one at `socket` serves the run.
void TellUnused(const RunOptions& options, const std::string& socket) {
  for (const auto& [is_given, option] :
       {std::pair(!options.state_folder.empty(), "--state-dir"),
        std::pair(!options.ringd_binary.empty(), "--ringd"), std::pair(options.keep, "--keep")}) {
    if (is_given) {
      std::fprintf(stderr,
                   "ringctl: %s is not used: it is for private ringds, and the ringd at %s "
                   "serves this run; --nodes 1 starts a private one\n",
                   option, socket.c_str());
    }
  }
}

// Fills plan.nodes. The result is kDone, or what to end with.
int ProvideNodes(const RunOptions& options, MadeFolders& folders, PrivateNodes& private_nodes,
                 JobPlan& plan) {
  if (options.nodes == 0) {
    const std::string socket = ChooseSocket(options.socket);
    absl::StatusOr<NodeAddress> running = RunningDaemon(socket);
    if (running.ok()) {
      TellUnused(options, socket);
      plan.nodes = {*std::move(running)};
      return kDone;
    }
    if (!options.socket.empty()) {
      std::fprintf(stderr, "ringctl: %s\n", ExplainUnreachable(socket, running.status()).c_str());
      return kUnreachable;
    }
    // Where there is none it goes without saying.
    if (!absl::IsNotFound(running.status())) {
      std::fprintf(stderr,
                   "ringctl: the ringd at %s is not used (%s): this run starts a private one\n",
                   socket.c_str(), std::string(running.status().message()).c_str());
    }
  }
  // Whoever names a folder wants what is learned to be there after the run: better no run than
  // hours of one that keeps nothing.
  for (int node = 0; node < std::max(options.nodes, 1) && !options.state_folder.empty(); ++node) {
    const int code = ProvideFolder("--state-dir", StateFolder(options, node), folders);
    if (code != kDone) return code;
  }
  if (const absl::Status status = private_nodes.Start(options); !status.ok()) {
    std::fprintf(stderr, "ringctl: %s\n", std::string(status.message()).c_str());
    return absl::IsCancelled(status) ? kSignalBase + PendingSignal() : kUnreachable;
  }
  plan.nodes = private_nodes.Addresses();
  return kDone;
}

// Tells the ringd of a rank how that ended, beside everything else.
class ExitReporter {
 public:
  explicit ExitReporter(const JobPlan& plan) : plan_(plan) {}
  ~ExitReporter() {
    for (std::thread& thread : threads_) thread.join();  // each ends with its call's deadline
  }

  void Report(const RankEnd& end) {
    v1::ReportExitRequest request;
    request.set_job_id(plan_.job_id);
    request.set_secret(plan_.secret);
    request.set_rank(end.rank);
    request.set_pid(end.pid);
    request.set_exit_code(end.end.exit_code);
    request.set_signal(end.end.signal);
    const auto node = static_cast<std::size_t>(end.rank / plan_.ranks_per_node);
    // Best effort: without it the other ranks learn that the rank died, and not how.
    try {
      threads_.emplace_back([request, socket = plan_.nodes[node].socket] {
        const Clock::time_point deadline = Clock::now() + kCallTimeout;
        auto client = AdminClient::Connect(socket, deadline);
        if (client.ok()) static_cast<void>((*client)->ReportExit(request, deadline));
      });
    } catch (const std::system_error&) {
      // Ranks often fail for want of threads.
    }
  }

 private:
  const JobPlan& plan_;
  std::vector<std::thread> threads_;
};

// Why the job has failed, as its ringds have it: of the ranks' processes those that were told of
// the failure often end before the one that failed. Empty: nobody knows.
std::string CauseOf(const JobPlan& plan, std::chrono::system_clock::time_point began) {
  const std::chrono::duration<double> began_unix = began.time_since_epoch();
  for (const auto& node : plan.nodes) {
    const Clock::time_point deadline = Clock::now() + kCallTimeout;
    const auto client = AdminClient::Connect(node.socket, deadline);
    if (!client.ok()) continue;
    const auto jobs = (*client)->ListJobs(plan.job_id, /*ended=*/true, deadline);
    if (!jobs.ok()) continue;
    // The latest of the name first. Others' may have it, too, and former runs.
    for (const v1::Job& job : jobs->jobs()) {
      if (job.uid() != ::geteuid() || job.started_unix_seconds() < began_unix.count()) continue;
      return job.failure();
    }
  }
  return "";
}

int RunJob(const RunOptions& options, const JobPlan& plan, Guardian& guardian,
           const PrivateNodes& private_nodes) {
  std::vector<std::string> inherited;
  for (char** entry = environ; *entry != nullptr; ++entry) inherited.emplace_back(*entry);
  std::vector<RankCommand> commands;
  const int size = options.ranks_per_node * static_cast<int>(plan.nodes.size());
  for (int rank = 0; rank < size; ++rank) {
    commands.push_back({rank, options.command, RankEnvironment(plan, rank, inherited)});
  }

  std::vector<pid_t> groups;
  SupervisorOptions supervisor;
  supervisor.prefix = options.prefix;
  supervisor.log_folder = options.log_folder;
  // A rank is not in the terminal's foreground group: reading from the terminal would stop it.
  if (::isatty(STDIN_FILENO) == 0) supervisor.standard_input = STDIN_FILENO;
  supervisor.grace = Milliseconds(options.grace_seconds);
  if (options.timeout_seconds > 0) {
    supervisor.time_limit = Clock::now() + Milliseconds(options.timeout_seconds);
  }
  supervisor.on_started = [&](pid_t group) {
    guardian.WatchGroup(group);
    groups.push_back(group);
  };
  supervisor.descriptor_limit = RaiseDescriptorLimit();
  ExitReporter reporter(plan);
  supervisor.on_failure = [&](const RankEnd& end) { reporter.Report(end); };
  supervisor.on_early_end = supervisor.on_failure;

  const auto began = std::chrono::system_clock::now();
  const absl::StatusOr<RunOutcome> outcome = RunRanks(commands, supervisor);
  for (const pid_t group : groups) guardian.ForgetGroup(group);
  if (!outcome.ok()) {
    Say(absl::StrCat("ringctl: ", outcome.status().message(), "\n"));
    return kFailed;
  }
  std::string report = private_nodes.DescribeDead();
  if (outcome->cause == RunOutcome::Cause::kRankFailed) {
    const std::string cause = CauseOf(plan, began);
    if (!cause.empty()) absl::StrAppend(&report, "ringctl: the job has failed: ", cause, "\n");
  }
  Say(absl::StrCat(report, SummarizeRun(*outcome, options.timeout_seconds)));
  return ExitCodeOf(*outcome);
}

}  // namespace

int RunCommand(const RunOptions& options) {
  MadeFolders folders;
  if (!options.log_folder.empty()) {
    const int code = ProvideFolder("--log-dir", options.log_folder, folders);
    if (code != kDone) return code;
  }
  PrepareSignals();
  absl::StatusOr<std::unique_ptr<Guardian>> guardian = Guardian::Start();
  const absl::StatusOr<int> port = FreePort();
  if (!guardian.ok() || !port.ok()) {
    const absl::Status status = guardian.ok() ? port.status() : guardian.status();
    std::fprintf(stderr, "ringctl: %s\n", std::string(status.message()).c_str());
    return kFailed;
  }
  JobPlan plan;
  plan.job_id = options.job_id.empty() ? absl::StrCat("run-", RandomDigits(4)) : options.job_id;
  plan.secret = RandomDigits(32);
  plan.ranks_per_node = options.ranks_per_node;
  plan.master_port = *port;
  plan.start_timeout_seconds = options.start_timeout_seconds;
  plan.weight = options.weight;
  PrivateNodes private_nodes(**guardian, options.keep);
  const int code = ProvideNodes(options, folders, private_nodes, plan);
  if (code != kDone) return code;
  return RunJob(options, plan, **guardian, private_nodes);
}

}  // namespace ringd::cli
