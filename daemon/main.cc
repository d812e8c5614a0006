// ringd: reads its configuration, serves, and ends when it is told to.
//
//   SIGTERM          drain: no new trainers and jobs; ends when the last trainer has gone, or after
//                    drain_timeout
//   SIGINT, or a     stop at once: running jobs fail with "ringd on <node> was stopped"
//   second SIGTERM
//   SIGHUP           reopens log_file, and takes over the settings that may change while it runs
//
// Exit codes: daemon/service/exit_code.h.
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "daemon/config/command_line.h"
#include "daemon/config/config_loader.h"
#include "daemon/config/link_state.h"
#include "daemon/config/network_identity.h"
#include "daemon/config/reload.h"
#include "daemon/gpu/gpu_probe.h"
#include "daemon/logging/log.h"
#include "daemon/logging/log_setup.h"
#include "daemon/rpc/grpc_log.h"
#include "daemon/service/daemon.h"
#include "daemon/service/exit_code.h"
#include "daemon/service/link_wait.h"
#include "daemon/service/link_watch.h"
#include "daemon/service/process_signals.h"
#include "daemon/service/ready_file.h"
#include "daemon/service/reloader.h"
#include "daemon/service/service_manager.h"
#include "daemon/service/start_check.h"
#include "daemon/version.h"
#include "proto/base/build_id.h"
#include "proto/base/clock.h"
#include "proto/base/errno_status.h"

namespace ringd {
namespace {

// How often the main thread looks at the links before it serves, and at the drain's progress.
constexpr std::chrono::milliseconds kLook{200};
// Of ringd.sysusers.
constexpr char kServiceUser[] = "ringd";
// What a start takes at most beside its waits for interfaces.
constexpr std::chrono::seconds kStartTime{60};
// While ringd drains it asks systemd for so much more time again and again.
constexpr std::chrono::seconds kDrainPatience{60};
// The same while settings are read again.
constexpr std::chrono::milliseconds kReloadLook{10};

int Complain(ExitCode code, const absl::Status& status) {
  // Each line has its priority if it goes to the journal.
  const char* const priority = StandardErrorIsJournal() ? "<3>" : "";
  for (const absl::string_view line : absl::StrSplit(status.message(), '\n')) {
    std::fprintf(stderr, "%sringd: %s\n", priority, std::string(line).c_str());
  }
  return code;
}

int Fail(const absl::Status& status) {
  LogError(status.message());
  return kExitFailed;
}

// Each session takes about ten descriptors; the usual soft limit of 1024 is for programs with
// select().
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// What a serving ringd goes by, and how it was asked for: SIGHUP reads that again.
struct Serving {
  const CommandLine& line;
  Config written;                    // as loaded
  Config config;                     // complete (ResolveNetwork)
  std::string file;                  // from which; empty: none
  std::string status;                // for the service manager
  bool was_asked_to_reload = false;  // before it served
  bool log_is_reopened = false;      // at the last time

  // Since when it drains; until when, at most.
  std::optional<Clock::time_point> draining_since = std::nullopt;
  Clock::time_point drain_deadline() const {
    const bool is_bounded = draining_since.has_value() && config.drain_timeout.count() > 0;
    return is_bounded ? *draining_since + config.drain_timeout : Clock::time_point::max();
  }
};

// On SIGHUP, at once.
void StartLogAnew(Serving& serving) {
  const absl::Status status = ReopenLog();
  serving.log_is_reopened = status.ok() && !serving.config.log_file.empty();
  if (status.ok()) return;
  LogError(absl::StrCat("SIGHUP: the log file can't be reopened, the old one is kept: ",
                        status.message()));
}

// Waits until the interfaces can carry data, for link_timeout at most. False: ringd was told to
// stop.
bool AwaitLinks(LinkWait& links, Serving& serving, const ProcessSignals& signals,
                ServiceManager& manager) {
  const std::chrono::nanoseconds patience = serving.config.link_timeout;
  const Clock::time_point deadline = Clock::now() + patience;
  manager.Extend(std::chrono::ceil<std::chrono::seconds>(patience) + kStartTime);
  for (;;) {
    if (const auto word = links.Look()) {
      LogInfo(*word);
      manager.Status(*word);
    }
    if (links.Ready() || Clock::now() >= deadline) return true;
    const int signal = signals.Wait(kLook);
    if (signal == SIGTERM || signal == SIGINT) return false;
    if (signal == SIGHUP) {
      StartLogAnew(serving);
      serving.was_asked_to_reload = true;
    }
  }
}

// What SIGHUP reads, on a thread of its own.
Reloader::Read BeginReload(const Serving& serving, Daemon& daemon) {
  return [line = serving.line, file = serving.file,
          current = daemon.admission()]() -> absl::StatusOr<Reloaded> {
    absl::StatusOr<LoadedConfig> loaded = LoadConfig(line, SystemConfigEnvironment());
    if (!loaded.ok()) return loaded.status();
    // It may be being replaced just now; its absence is not its owner's word for the defaults.
    if (loaded->file.empty() && !file.empty()) {
      return absl::NotFoundError(absl::StrCat("configuration file ", file, " is not there"));
    }
    absl::StatusOr<Admission> renewed = current->Renew(loaded->config);
    if (!renewed.ok()) return renewed.status();
    return Reloaded{*std::move(loaded), std::make_shared<Admission>(*std::move(renewed))};
  };
}

// A configuration that is wrong leaves everything as it is.
void TakeOver(absl::StatusOr<Reloaded> reloaded, Daemon& daemon, Serving& serving) {
  if (!reloaded.ok()) {
    LogError(
        absl::StrCat("SIGHUP: the configuration is refused, and all settings stay as they "
                     "were: ",
                     reloaded.status().message()));
    return;
  }
  for (const std::string& warning : reloaded->loaded.warnings) LogWarning(warning);
  const Config& loaded = reloaded->loaded.config;
  daemon.Reload(loaded, std::move(reloaded->admission));
  const ChangedSettings changed = CompareConfigs(serving.written, loaded);
  TakeReloaded(loaded, serving.config);
  TakeReloaded(loaded, serving.written);
  // Said while the level is the one at which it is read.
  const auto tell = [&changed, is_reopened = serving.log_is_reopened] {
    LogInfo(absl::StrCat(
        "SIGHUP: ", is_reopened ? "the log file is reopened; " : "", "settings taken over: ",
        changed.reloaded.empty() ? "none has changed" : absl::StrJoin(changed.reloaded, ", ")));
    if (changed.restarting.empty()) return;
    LogWarning(absl::StrCat("SIGHUP: these settings have changed, but need a restart: ",
                            absl::StrJoin(changed.restarting, ", ")));
  };
  if (!LogEnabled(LogLevel::kInfo)) SetLogLevel(serving.config.log_level);
  tell();
  SetLogLevel(serving.config.log_level);
}

// Returns when it is time to stop: after a drain, or at once.
void RunUntilStopped(Daemon& daemon, Serving& serving, const ProcessSignals& signals,
                     ServiceManager& manager, LinkWatch& watch) {
  Clock::time_point next_extension;
  Reloader reloader([&] { return BeginReload(serving, daemon); });
  if (serving.was_asked_to_reload) reloader.Ask(Clock::now());
  for (;;) {
    bool draining = serving.draining_since.has_value();
    const int signal = signals.Wait(reloader.IsUnderWay() ? kReloadLook : kLook);
    const Clock::time_point now = Clock::now();
    manager.Watch(daemon.heartbeat(), now);
    if (watch.Look(now)) daemon.TellOfLinks(watch.problems());
    if (signal == SIGHUP) {
      if (!draining) manager.Reloading();
      StartLogAnew(serving);
      reloader.Ask(now);
    }
    if (auto reloaded = reloader.Take(now)) {
      TakeOver(*std::move(reloaded), daemon, serving);
      if (!draining && !reloader.IsUnderWay()) manager.Ready(serving.status);
    }
    if (signal == SIGINT || (signal == SIGTERM && draining)) {
      LogInfo("stopping at once");
      return;
    }
    if (signal == SIGTERM) {
      draining = true;
      serving.draining_since = now;
      daemon.Drain();
      manager.Stopping("draining: waiting for trainers to end");
      LogInfo("draining: ends when the last trainer has gone; a second SIGTERM stops at once");
    }
    if (draining && now >= next_extension) {
      manager.Extend(kDrainPatience);
      next_extension = now + kDrainPatience / 3;
    }
    if (draining && daemon.Idle()) return;
    if (now >= serving.drain_deadline()) {
      LogWarning("drain_timeout has passed: stopping with trainers attached");
      return;
    }
  }
}

// The cluster's key is in it: nobody but root reads it, no debugger and no core either.
void ShutMemory() { ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); }

int Serve(const CommandLine& line, LoadedConfig loaded) {
  ShutMemory();
  Serving serving{line, loaded.config, std::move(loaded.config), std::move(loaded.file), ""};
  Config& config = serving.config;
  if (absl::Status status = StartLogging(config); !status.ok()) {
    return Complain(kExitFailed, status);
  }
  RouteGrpcLog();
  for (const std::string& warning : loaded.warnings) LogWarning(warning);
  if (absl::Status status = CheckStateDir(config.state_dir); !status.ok()) {
    LogWarning(
        absl::StrCat("what is learned about jobs can't be kept (state_dir): ", status.message()));
  }
  ReadyFile::RemoveStale(config.ready_file);
  RaiseDescriptorLimit();
  absl::StatusOr<ProcessSignals> signals = ProcessSignals::Take();
  if (!signals.ok()) return Fail(signals.status());
  ServiceManager manager;
  // Without an address there is nothing to resolve.
  LinkWait named(LinksOf(config), DescribeUnreadyLinks);
  if (!AwaitLinks(named, serving, *signals, manager)) return kExitDone;
  if (absl::Status status = ResolveNetwork(config); !status.ok()) return Fail(status);
  LinkWait links(LinksOf(config), DescribeUnreadyLinks);
  if (named.Ready() && !AwaitLinks(links, serving, *signals, manager)) return kExitDone;
  static_cast<void>(links.Look());
  for (const std::string& warning : FindStartWarnings(config)) LogWarning(warning);
  if (!links.Ready()) {
    LogWarning(
        absl::StrCat(links.problems(), ", also after link_timeout: ringd serves without, and ",
                     "takes them when they are ready; until then jobs over several nodes fail"));
  }
  // Those that come during the start are taken afterwards.
  const auto addresses = [used = LinksOf(config)] { return DescribeAddresses(used); };
  std::string used_addresses = addresses();
  absl::StatusOr<std::unique_ptr<Daemon>> daemon = Daemon::Start(config, serving.file);
  if (!daemon.ok()) return Fail(daemon.status());
  // Some may be too young to be served: they are tried again.
  if (!(*daemon)->ListenOnPeerInterface().ok()) used_addresses.clear();
  LinkWatch watch(links, addresses, used_addresses, [&] { return (*daemon)->UseLinks(); });
  (*daemon)->TellOfLinks(links.problems());
  const std::string& peer_address = (*daemon)->peer_address();
  absl::StatusOr<ReadyFile> ready =
      ReadyFile::Write(config.ready_file, config.socket, peer_address, config.node_name);
  if (!ready.ok()) return Fail(ready.status());

  LogInfo(absl::StrCat("ringd ", VersionAndBuild(kRingdVersion), " serves ", config.socket,
                       " on node ", config.node_name, ", other ringds at ", peer_address));
  serving.status = absl::StrCat("serving ", config.socket, ", other ringds at ", peer_address);
  manager.Ready(serving.status);
  RunUntilStopped(**daemon, serving, *signals, manager, watch);
  manager.Stopping("stopping");
  (*daemon)->Stop();
  LogInfo("stopped");
  return kExitDone;
}

// The code of an action that has printed what it was asked for.
int FinishOutput() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return kExitDone;
  return Complain(kExitFailed, ErrnoStatus(errno, "write standard output"));
}

// What only this machine knows: its interfaces, users and folders, what UCX and its kernel have. It
// may change, so it is no wrong configuration: the code is that of a start that fails for it.
int CheckOnThisMachine(LoadedConfig loaded) {
  absl::Status status = ResolveNetwork(loaded.config);
  if (!status.ok()) return Complain(kExitFailed, status);
  std::vector<std::string> problems = FindStartProblems(loaded.config);
  status = Daemon::Check(loaded.config);
  if (!status.ok()) problems.emplace_back(status.message());
  if (!problems.empty()) {
    return Complain(kExitFailed, absl::FailedPreconditionError(absl::StrJoin(problems, "\n")));
  }
  for (const std::string& warning : FindStartWarnings(loaded.config)) {
    std::fprintf(stderr, "ringd: warning: %s\n", warning.c_str());
  }
  std::printf("the configuration is good (file: %s)\n",
              loaded.file.empty() ? "none" : loaded.file.c_str());
  // Root may read and write what the service's user may not.
  if (::geteuid() == 0 && ::getpwnam(kServiceUser) != nullptr) {  // NOLINT(concurrency-mt-unsafe)
    std::printf("as root; as the service: runuser -u %s -- ringd --check-config\n", kServiceUser);
  }
  return FinishOutput();
}

// The library is the flag's, not the file's: that may have changed since the ringd that asks has
// read it.
[[noreturn]] void Probe(const CommandLine& line) {
  const bool is_cuda = line.probed == "cuda";
  const Config defaults;
  std::string file = is_cuda ? defaults.cuda_library : defaults.nccl_library;
  for (const WrittenSetting& setting : line.settings) {
    if (setting.key == (is_cuda ? "cuda_library" : "nccl_library")) file = setting.text;
  }
  ProbeGpus(is_cuda ? ProbedLibrary::kCuda : ProbedLibrary::kNccl, file);
}

int Main(std::span<const char* const> arguments) {
  // Where whoever started ringd has it ignored, nobody would hear of its engines' ends.
  ::signal(SIGCHLD, SIG_DFL);
  absl::StatusOr<CommandLine> line = ParseCommandLine(arguments);
  if (!line.ok()) return Complain(kExitUsage, line.status());
  if (line->action == CommandLineAction::kHelp) {
    std::fputs(line->help.c_str(), stdout);
    return FinishOutput();
  }
  if (line->action == CommandLineAction::kVersion) {
    std::printf("ringd %s\n", VersionAndBuild(kRingdVersion).c_str());
    return FinishOutput();
  }
  if (line->action == CommandLineAction::kProbeGpus) Probe(*line);
  absl::StatusOr<LoadedConfig> loaded = LoadConfig(*line, SystemConfigEnvironment());
  if (!loaded.ok()) return Complain(kExitUsage, loaded.status());
  if (line->action == CommandLineAction::kServe) return Serve(*line, *std::move(loaded));
  for (const std::string& warning : loaded->warnings) {
    std::fprintf(stderr, "ringd: warning: %s\n", warning.c_str());
  }
  if (line->action == CommandLineAction::kPrintConfig) {
    std::fputs(PrintConfig(*loaded).c_str(), stdout);
    return FinishOutput();
  }
  return CheckOnThisMachine(*std::move(loaded));
}

}  // namespace
}  // namespace ringd

int main(int argc, char** argv) {
  return ringd::Main(std::span<const char* const>(argv + 1, static_cast<std::size_t>(argc - 1)));
}
