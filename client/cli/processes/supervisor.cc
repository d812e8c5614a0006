#include "client/cli/processes/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/processes/early_ends.h"
#include "client/cli/processes/line_assembler.h"
#include "client/cli/processes/output_sink.h"
#include "client/cli/processes/process_groups.h"
#include "client/cli/processes/signals.h"
#include "proto/base/errno_status.h"
#include "proto/base/unique_fd.h"

namespace ringd::cli {
namespace {

using std::chrono::milliseconds;

// For what the ranks left behind: from SIGTERM to SIGKILL, if nobody had been told to end before,
// and from there to giving up its output.
constexpr milliseconds kLeftoverGrace{500};
// How often to look whether they are there: each look reads all of /proc.
constexpr milliseconds kGroupsInterval{20};
// One wish to end may come as several signals within it: of a terminal that has gone, SIGHUP by the
// shell and by the kernel; of a session's end, SIGTERM and SIGHUP by systemd; SIGTERM by `timeout`
// to its child and to its group.
constexpr milliseconds kOneWish{1000};
// Read from a pipe at once; and what a pipe holds at most.
constexpr std::size_t kPieceBytes = 65536;
constexpr int kPiecesInPipe = 16;

sigset_t ChildEnds() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGCHLD);
  return set;
}

// One output stream of one rank.
struct Stream {
  UniqueFd pipe;  // closed at its end
  UniqueFd log;
  std::string log_path;
  LineAssembler lines;
  OutputSink* sink;
};

struct RankProcess {
  int rank;
  pid_t pid;
  bool ended = false;
  std::vector<std::unique_ptr<Stream>> streams;
};

class Supervisor {
 public:
  explicit Supervisor(const SupervisorOptions& options)
      : options_(options),
        signals_(MakeSignalFd(Interrupts())),
        child_ends_(MakeSignalFd(ChildEnds())),
        output_(options.standard_output, signals_.get(), [this] { return GoesOnBesideReader(); }),
        errors_(options.standard_error, signals_.get(), [this] { return GoesOnBesideReader(); }) {}

  absl::StatusOr<RunOutcome> Run(const std::vector<RankCommand>& commands) {
    for (const RankCommand& command : commands) {
      if (absl::Status status = Start(command); !status.ok()) {
        SignalAll(SIGKILL);
        EndLeftovers();
        return status;
      }
    }
    while (running_ > 0) {
      Wait(NextDeadline());
      CollectEnds();
      if (running_ > 0) early_ends_.Tell(Clock::now(), options_.on_early_end);
      Escalate();
    }
    EndLeftovers();
    return std::move(outcome_);
  }

 private:
  // What is being done about a run that must end.
  enum class Stage { kRunning, kGrace, kTerminated, kKilled };

  static int MakeSignalFd(const sigset_t& set) {
    return ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  }

  absl::Status Start(const RankCommand& command) {
    auto process = std::make_unique<RankProcess>();
    process->rank = command.rank;
    const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    SpawnOptions spawn;
    spawn.arguments = command.arguments;
    spawn.environment = command.environment;
    spawn.standard_input =
        command.rank == 0 && options_.standard_input >= 0 ? options_.standard_input : null.get();
    UniqueFd write_ends[2];
    for (int i = 0; i < 2; ++i) {
      int ends[2];
      if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "create a pipe");
      write_ends[i].Reset(ends[1]);
      auto stream = std::make_unique<Stream>(
          Stream{UniqueFd(ends[0]), UniqueFd(), "",
                 LineAssembler(options_.prefix ? absl::StrCat("[", command.rank, "] ") : ""),
                 i == 0 ? &output_ : &errors_});
      ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
      if (!options_.log_folder.empty()) {
        stream->log_path =
            absl::StrCat(options_.log_folder, "/rank-", command.rank, i == 0 ? ".out" : ".err");
        stream->log.Reset(
            ::open(stream->log_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
        if (!stream->log.valid()) {
          return ErrnoStatus(errno, absl::StrCat("write ", stream->log_path));
        }
      }
      process->streams.push_back(std::move(stream));
    }
    spawn.standard_output = write_ends[0].get();
    spawn.standard_error = write_ends[1].get();
    spawn.descriptor_limit = options_.descriptor_limit;
    const absl::StatusOr<pid_t> pid = Spawn(spawn);
    if (!pid.ok()) return pid.status();
    process->pid = *pid;
    options_.on_started(*pid);
    processes_.push_back(std::move(process));
    ++running_;
    return absl::OkStatus();
  }

  Clock::time_point NextDeadline() const {
    if (stage_ != Stage::kRunning) return next_step_;
    const Clock::time_point limit =
        options_.time_limit.value_or(Clock::now() + std::chrono::hours(1));
    return std::min(limit, early_ends_.next().value_or(limit));
  }

  // Waits for output, signals or the deadline, and handles the first two.
  void Wait(Clock::time_point deadline) {
    std::vector<pollfd> polled = {{signals_.get(), POLLIN, 0}, {child_ends_.get(), POLLIN, 0}};
    const std::size_t first_stream = polled.size();
    std::vector<Stream*> streams;
    for (const auto& process : processes_) {
      for (const auto& stream : process->streams) {
        if (!stream->pipe.valid()) continue;
        polled.push_back({stream->pipe.get(), POLLIN, 0});
        streams.push_back(stream.get());
      }
    }
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
    const int timeout = static_cast<int>(std::clamp<std::int64_t>(left, 0, 3600 * 1000));
    if (::poll(polled.data(), polled.size(), timeout) <= 0) return;
    if (polled[0].revents != 0) ReadSignals();
    if (polled[1].revents != 0) ForgetChildEnds();
    for (std::size_t i = 0; i < streams.size(); ++i) {
      if (polled[first_stream + i].revents != 0) Relay(*streams[i]);
    }
    // A write that has given up did so for a signal.
    if (output_.broken() && output_.error() == 0) ReadSignals();
    EndIfUnwritable(output_);
    EndIfUnwritable(errors_);
  }

  void EndIfUnwritable(const OutputSink& sink) {
    if (!sink.broken() || sink.error() == 0 || stage_ != Stage::kRunning) return;
    outcome_.cause = RunOutcome::Cause::kOutputGone;
    outcome_.output_error = sink.error();
    BeginEnd(milliseconds(0));
  }

  // In the stream's log. One that can't be written any more costs the run nothing but that.
  void Keep(Stream& stream, absl::string_view bytes) {
    OutputSink log(stream.log.get(), -1);
    log.Write(bytes);
    if (!log.broken()) return;
    stream.log.Reset();
    errors_.Write(absl::StrCat("ringctl: warning: ", stream.log_path, " ends here: ",
                               ErrnoStatus(log.error(), "it can't be written").message(), "\n"));
  }

  void Relay(Stream& stream) {
    std::array<char, kPieceBytes> buffer;
    const ssize_t got = ::read(stream.pipe.get(), buffer.data(), buffer.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    std::string lines;
    if (got > 0) {
      const absl::string_view bytes(buffer.data(), static_cast<std::size_t>(got));
      if (stream.log.valid()) Keep(stream, bytes);
      stream.lines.Append(bytes, lines);
    } else {
      stream.lines.Finish(lines);
      stream.pipe.Reset();
    }
    stream.sink->Write(lines);
  }

  // What is in the pipe, however long the reader of our output takes for it; no more than a pipe
  // holds, in case somebody goes on writing.
  void TakeRest(Stream& stream) {
    for (int piece = 0; piece < kPiecesInPipe && stream.pipe.valid(); ++piece) Relay(stream);
    std::string rest;
    stream.lines.Finish(rest);
    stream.sink->Write(rest);
  }

  void ReadSignals() {
    signalfd_siginfo info;
    while (::read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (interrupted_at_.has_value()) {
        if (!IsAnotherWish(signal)) continue;
        SignalAll(SIGKILL);
        stage_ = Stage::kKilled;
        continue;
      }
      if (stage_ == Stage::kRunning) {
        outcome_.cause = RunOutcome::Cause::kSignal;
        outcome_.signal = signal;
      }
      TellToEnd(signal);
      BeginEnd(options_.grace);
      interrupted_at_ = Clock::now();
    }
  }

  // After a first one. Who is impatient says so by Ctrl-C, or by SIGTERM a while later.
  bool IsAnotherWish(int signal) const {
    return signal == SIGINT || (signal == SIGTERM && Clock::now() >= *interrupted_at_ + kOneWish);
  }

  // CollectEnds looks at all processes.
  void ForgetChildEnds() {
    signalfd_siginfo info;
    while (::read(child_ends_.get(), &info, sizeof(info)) == sizeof(info)) {
    }
  }

  void CollectEnds() {
    std::vector<RankEnd> ends;
    for (const auto& process : processes_) {
      if (process->ended) continue;
      const std::optional<ProcessEnd> end = PeekEnd(process->pid);
      if (!end.has_value()) continue;
      process->ended = true;
      --running_;
      ends.push_back({process->rank, process->pid, *end, told_to_end_.has_value()});
    }
    // Nothing tells in which order those ended that are found at once. One that was killed did not
    // end because of the others.
    std::stable_partition(ends.begin(), ends.end(),
                          [](const RankEnd& end) { return end.end.signal != 0; });
    for (const RankEnd& end : ends) TakeEnd(end);
  }

  void TakeEnd(const RankEnd& end) {
    outcome_.ends.push_back(end);
    if (end.end.ok() && stage_ == Stage::kRunning) early_ends_.Note(end, Clock::now());
    if (end.end.ok() || end.signalled_by_us) return;
    options_.on_failure(end);
    if (outcome_.first_failure.has_value()) return;
    outcome_.first_failure = outcome_.ends.size() - 1;
    if (stage_ != Stage::kRunning) return;
    outcome_.cause = RunOutcome::Cause::kRankFailed;
    BeginEnd(options_.grace);
  }

  void BeginEnd(milliseconds grace) {
    if (stage_ != Stage::kRunning) return;
    stage_ = Stage::kGrace;
    next_step_ = Clock::now() + grace;
  }

  // What a reader of the output that stands still must not hold up. False: it has to do without
  // the rest.
  bool GoesOnBesideReader() {
    if (running_ == 0) {
      return outcome_.cause != RunOutcome::Cause::kTimeLimit ||
             Clock::now() < next_step_ + options_.grace;
    }
    CollectEnds();
    Escalate();
    return true;
  }

  void TellToEnd(int signal) {
    SignalAll(signal);
    if (!told_to_end_.has_value()) told_to_end_ = Clock::now();
    told_by_ = signal;
  }

  // Takes the next step against ranks that are still there when its time has come.
  void Escalate() {
    const Clock::time_point now = Clock::now();
    if (stage_ == Stage::kRunning) {
      if (!options_.time_limit.has_value() || now < *options_.time_limit) return;
      outcome_.cause = RunOutcome::Cause::kTimeLimit;
      BeginEnd(milliseconds(0));
    }
    if (now < next_step_) return;
    if (stage_ == Stage::kGrace) {
      TellToEnd(SIGTERM);
      stage_ = Stage::kTerminated;
    } else {
      SignalAll(SIGKILL);
      stage_ = Stage::kKilled;
    }
    next_step_ = now + options_.grace;
  }

  // To the process groups: a rank that has ended is still a zombie here, so that its number can't
  // mean anybody else.
  void SignalAll(int signal) {
    for (const auto& process : processes_) ::kill(-process->pid, signal);
    // One that is stopped would not see it.
    if (signal != SIGKILL) {
      for (const auto& process : processes_) ::kill(-process->pid, SIGCONT);
    }
  }

  bool OutputLeft() const {
    return std::any_of(processes_.begin(), processes_.end(), [](const auto& process) {
      return std::any_of(process->streams.begin(), process->streams.end(),
                         [](const auto& stream) { return stream->pipe.valid(); });
    });
  }

  void Drain(Clock::time_point deadline) {
    while (OutputLeft() && Clock::now() < deadline) Wait(deadline);
  }

  // While a process of the groups is alive that does not ignore `signal`, until `deadline`.
  void AwaitGroups(int signal, Clock::time_point deadline) {
    std::set<pid_t> groups;
    for (const auto& process : processes_) groups.insert(process->pid);
    while (AnyAlive(groups, signal) && Clock::now() < deadline) {
      const Clock::time_point look = std::min(deadline, Clock::now() + kGroupsInterval);
      while (Clock::now() < look) Wait(look);
    }
  }

  // Every rank has ended: ends the processes that they left in their groups, and takes the rest of
  // the output. A pipe that stays open although all are dead belongs to one that left its group.
  void EndLeftovers() {
    stage_ = Stage::kKilled;
    // A trainer that a shell had started may still write its checkpoint.
    Clock::time_point deadline = Clock::now() + kLeftoverGrace;
    if (told_to_end_.has_value()) {
      deadline = std::max(deadline, *told_to_end_ + options_.grace);
      if (told_by_ != SIGTERM) AwaitGroups(told_by_, deadline);
    }
    SignalAll(SIGTERM);
    AwaitGroups(SIGTERM, std::max(deadline, Clock::now() + kLeftoverGrace));
    SignalAll(SIGKILL);
    Drain(Clock::now() + kLeftoverGrace);
    for (const auto& process : processes_) {
      for (const auto& stream : process->streams) TakeRest(*stream);
      Reap(process->pid);
    }
  }

  const SupervisorOptions& options_;
  const UniqueFd signals_;     // what interrupts also a write that waits for a reader
  const UniqueFd child_ends_;  // which does not
  OutputSink output_;
  OutputSink errors_;
  std::vector<std::unique_ptr<RankProcess>> processes_;
  std::size_t running_ = 0;
  Stage stage_ = Stage::kRunning;
  Clock::time_point next_step_;
  std::optional<Clock::time_point> told_to_end_;     // since when; nullopt: nobody was
  int told_by_ = 0;                                  // the signal that all ranks got last
  std::optional<Clock::time_point> interrupted_at_;  // when the first signal came to ringctl
  EarlyEnds early_ends_;                             // while it is kRunning
  RunOutcome outcome_;
};

}  // namespace

absl::StatusOr<RunOutcome> RunRanks(const std::vector<RankCommand>& commands,
                                    const SupervisorOptions& options) {
  return Supervisor(options).Run(commands);
}

}  // namespace ringd::cli
