#include "daemon/engine_process/walls.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>

#include "daemon/sessions/process_exit.h"
#include "proto/base/unique_fd.h"
#include "proto/base/unix_socket.h"

namespace ringd {
namespace {

using Catch::Contains;

constexpr int kPatienceMs = 10'000;

#if defined(RINGD_ASAN)
constexpr bool kFiltersCalls = false;
#else
constexpr bool kFiltersCalls = true;
#endif

long LandlockVersion() { return ::syscall(444, nullptr, 0, 1); }

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string StatusLine(const std::string& key) {
  const std::string text = "\n" + ReadAll("/proc/self/status");
  const auto begin = text.find("\n" + key + ":\t");
  if (begin == std::string::npos) return "";
  const auto value = begin + key.size() + 3;
  return text.substr(value, text.find('\n', value) - value);
}

// 0, or errno.
int TryToOpen(const std::string& path, int flags) {
  const UniqueFd fd(::open(path.c_str(), flags | O_CLOEXEC, 0600));
  return fd.valid() ? 0 : errno;
}

// What `inside` says, carried out behind the walls by a child of this process.
std::string Behind(const WallOptions& options, const std::function<std::string()>& inside) {
  auto channel = UnixSocketPair();
  REQUIRE(channel.ok());
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  UniqueFd reader(ends[0]), writer(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    WallOptions with = options;
    with.channel = channel->second.get();
    const auto missing = PutUpWalls(with);
    std::string said = missing.ok() ? inside() : std::string(missing.status().message());
    static_cast<void>(!::write(writer.get(), said.data(), said.size()));
    ::_exit(0);
  }
  writer.Reset();
  std::string text;
  char piece[4096];
  pollfd end{reader.get(), POLLIN, 0};
  while (::poll(&end, 1, kPatienceMs) == 1) {
    const ssize_t length = ::read(reader.get(), piece, sizeof piece);
    if (length <= 0) break;
    text.append(piece, static_cast<std::size_t>(length));
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return text;
}

// The same; `inside` says in words what it did not find as it should be.
std::string Complaints(const std::function<void(std::string&)>& inside, bool files = true) {
  return Behind({.shut_out_files = files}, [&] {
    std::string complaints;
    inside(complaints);
    return complaints;
  });
}

void Expect(std::string& complaints, bool holds, const std::string& what) {
  if (!holds) complaints += what + " (" + std::to_string(errno) + "); ";
}

struct Folder {
  Folder() {
    char name[] = "/tmp/ringd-XXXXXX";
    path = ::mkdtemp(name);
    std::ofstream(path + "/cluster.key") << "secret";
    ::chmod((path + "/cluster.key").c_str(), 0600);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

TEST_CASE("PutUpWalls: what the kernel says of a process behind them") {
  int before = 0;
  std::ifstream("/proc/self/oom_score_adj") >> before;
  rlimit files{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &files) == 0);
  CHECK(Complaints([&](std::string& out) {
          rlimit own{};
          ::getrlimit(RLIMIT_NOFILE, &own);
          Expect(out, own.rlim_max == files.rlim_max - std::min<rlim_t>(files.rlim_max / 4, 8192),
                 "descriptors " + std::to_string(own.rlim_max));
          int score = 0;
          std::ifstream("/proc/self/oom_score_adj") >> score;
          Expect(out, score == std::min(before + 100, 1000), "score " + std::to_string(score));
          Expect(out, ::prctl(PR_GET_DUMPABLE) == 0, "dumpable");
          Expect(out, ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1, "new privileges");
          int signal = 0;
          ::prctl(PR_GET_PDEATHSIG, &signal);
          Expect(out, signal == SIGKILL, "outlives its parent");
          constexpr std::uint64_t kPinMemory = 1 << 14;
          for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"}) {
            // Only who has the right to takes from the bounding set.
            if (std::string(set) == "CapBnd" && ::geteuid() != 0) continue;
            const std::uint64_t left = std::stoull("0" + StatusLine(set), nullptr, 16);
            Expect(out, (left & ~kPinMemory) == 0, std::string(set) + " " + StatusLine(set));
          }
        }) == "");
}

TEST_CASE("PutUpWalls: signals that ask a process to end are ignored") {
  CHECK(Complaints([](std::string& out) {
          for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
            Expect(out, ::raise(signal) == 0, "raise");
          }
        }) == "");
}

TEST_CASE("PutUpWalls: neither reads the cluster's key nor writes into a folder of its user") {
  if (LandlockVersion() < 1) return;
  const Folder folder;
  CHECK(Complaints([&](std::string& out) {
          Expect(out, TryToOpen(folder.path + "/cluster.key", O_RDONLY) == EACCES, "reads the key");
          Expect(out, TryToOpen(folder.path + "/plan", O_WRONLY | O_CREAT) == EACCES, "writes");
          Expect(out, ::unlink((folder.path + "/cluster.key").c_str()) != 0, "removes");
          Expect(out, ::mkdir((folder.path + "/sub").c_str(), 0700) != 0, "makes folders");
          Expect(out, TryToOpen("/etc/shadow", O_RDONLY) == EACCES, "reads passwords");
          Expect(out, TryToOpen("/proc/sys/kernel/core_pattern", O_WRONLY) == EACCES, "/proc/sys");
          Expect(out, TryToOpen("/usr/ringd-new", O_WRONLY | O_CREAT) == EACCES, "writes in /usr");
          // Threads that it starts have the same walls.
          std::thread([&] {
            Expect(out, TryToOpen(folder.path + "/cluster.key", O_RDONLY) == EACCES, "thread");
          }).join();
        }) == "");
  CHECK(std::filesystem::exists(folder.path + "/cluster.key"));
}

TEST_CASE("PutUpWalls: the pipes of an MPS that is named can be opened, and nothing beside them") {
  if (LandlockVersion() < 1) return;
  const Folder folder;
  const std::string mps = folder.path + "/mps";
  const std::string pipe = mps + "/control";
  REQUIRE(::mkdir(mps.c_str(), 0700) == 0);
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const auto look = [&] {
    return Complaints([&](std::string& out) {
      Expect(out, TryToOpen(pipe, O_RDWR | O_NONBLOCK) == 0, "no pipe");
      Expect(out, TryToOpen(mps + "/new", O_WRONLY | O_CREAT) == EACCES, "makes files");
      Expect(out, TryToOpen(folder.path + "/cluster.key", O_RDONLY) == EACCES, "reads the key");
    });
  };
  CHECK_THAT(look(), Contains("no pipe"));
  ::setenv("CUDA_MPS_PIPE_DIRECTORY", mps.c_str(), 1);
  CHECK(look() == "");
  ::unsetenv("CUDA_MPS_PIPE_DIRECTORY");
}

TEST_CASE("PutUpWalls: what an engine needs is there") {
  CHECK(Complaints([&](std::string& out) {
          Expect(out, !ReadAll("/proc/self/statm").empty(), "statm");
          Expect(out, !ReadAll("/proc/" + std::to_string(::getppid()) + "/stat").empty(), "stat");
          Expect(out, !ReadAll("/proc/sys/net/ipv4/tcp_allowed_congestion_control").empty(), "sys");
          Expect(out, TryToOpen("/dev/null", O_RDWR) == 0, "/dev/null");
          Expect(out, TryToOpen("/dev/urandom", O_RDONLY) == 0, "/dev/urandom");
          Expect(out, ::dlopen("libm.so.6", RTLD_NOW) != nullptr, "dlopen");
          const UniqueFd memory(::memfd_create("segment", MFD_CLOEXEC));
          Expect(out, memory.valid() && ::ftruncate(memory.get(), 4096) == 0, "memfd");
          Expect(out,
                 ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0) !=
                     MAP_FAILED,
                 "mmap");
          Expect(out, UnixSocketPair().ok(), "socketpair");
          const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
          Expect(out, socket.valid(), "socket");
          const UniqueFd parent(static_cast<int>(::syscall(SYS_pidfd_open, ::getppid(), 0)));
          Expect(out, parent.valid(), "pidfd_open");
          Expect(
              out,
              ::syscall(SYS_pidfd_send_signal, parent.get(), 0, nullptr, 0) == 0 || errno == EPERM,
              "asking for a process");
          std::thread thread([] { ::poll(nullptr, 0, 50); });
          Expect(out, ::pthread_setname_np(thread.native_handle(), "ringd-named") == 0, "name");
          thread.join();
        }) == "");
}

TEST_CASE("PutUpWalls: starts no process, looks into none and signals none") {
  if (!kFiltersCalls) return;
  int looked_at = 7;
  CHECK(Complaints([&](std::string& out) {
          const pid_t child = ::fork();
          if (child == 0) ::_exit(0);
          Expect(out, child < 0 && errno == EPERM, "forks");
          Expect(out, ::execl("/bin/true", "true", nullptr) < 0 && errno == EPERM, "executes");
          int copy = 0;
          iovec to{&copy, sizeof copy}, from{&looked_at, sizeof looked_at};
          Expect(out, ::process_vm_readv(::getppid(), &to, 1, &from, 1, 0) < 0, "reads memory");
          Expect(out, TryToOpen("/proc/" + std::to_string(::getppid()) + "/mem", O_RDONLY) != 0,
                 "/proc/PID/mem");
          Expect(out, ::kill(::getppid(), SIGKILL) < 0 && errno == EPERM, "signals");
          const UniqueFd parent(static_cast<int>(::syscall(SYS_pidfd_open, ::getppid(), 0)));
          Expect(out,
                 ::syscall(SYS_pidfd_send_signal, parent.get(), SIGKILL, nullptr, 0) < 0 &&
                     errno == EPERM,
                 "signals by pidfd");
          Expect(out, ::syscall(438, parent.get(), 0, 0) < 0, "takes descriptors");
          Expect(out, ::unshare(CLONE_NEWUSER) < 0 && errno == EPERM, "makes namespaces");
        }) == "");
}

// With Landlock's walls and without: from some version on it has one against signals, too.
TEST_CASE("PutUpWalls: sets no limit, priority, processors or owner of signals but its own") {
  if (!kFiltersCalls) return;
  for (const bool files : {true, false}) {
    CHECK(Complaints(
              [&](std::string& out) {
                const pid_t ringd = ::getppid();
                const auto refused = [&](long result, const std::string& what) {
                  Expect(out, result < 0 && errno == EPERM, what);
                };
                rlimit limit{};
                Expect(out, ::getrlimit(RLIMIT_NOFILE, &limit) == 0, "reads no limit");
                Expect(out, ::setrlimit(RLIMIT_NOFILE, &limit) == 0, "sets no limit");
                Expect(out, ::prlimit(::getpid(), RLIMIT_NOFILE, &limit, nullptr) == 0, "own pid");
                refused(::prlimit(ringd, RLIMIT_NOFILE, &limit, nullptr), "sets limits");
                refused(::prlimit(ringd, RLIMIT_NOFILE, nullptr, &limit), "reads limits");

                cpu_set_t processors;
                Expect(out, ::sched_getaffinity(0, sizeof processors, &processors) == 0, "where");
                Expect(out, ::sched_setaffinity(0, sizeof processors, &processors) == 0, "stays");
                cpu_set_t one, seen;
                CPU_ZERO(&one);
                CPU_SET(::sched_getcpu(), &one);
                ::sched_setaffinity(ringd, sizeof one, &one);
                ::sched_getaffinity(ringd, sizeof seen, &seen);
                Expect(out, CPU_EQUAL(&seen, &processors), "moves ringd");
                sched_param parameter{};
                Expect(out, ::sched_setscheduler(0, SCHED_OTHER, &parameter) == 0, "own schedule");
                refused(::sched_setscheduler(ringd, SCHED_IDLE, &parameter), "sets ringd idle");
                refused(::sched_setparam(ringd, &parameter), "sets parameters");
                refused(::syscall(SYS_sched_setattr, ringd, &parameter, 0), "sets attributes");
                std::thread([&] {
                  errno = 0;
                  Expect(out, ::nice(1) != -1 || errno == 0, "gives no way");
                }).join();
                const auto which = static_cast<id_t>(ringd);
                const int before = ::getpriority(PRIO_PROCESS, which);
                ::setpriority(PRIO_PROCESS, which, before + 1);
                ::setpriority(PRIO_PGRP, 0, before + 1);
                Expect(out, ::getpriority(PRIO_PROCESS, which) == before, "slows ringd");
                refused(::syscall(SYS_ioprio_set, 1, ringd, 0), "slows its disk");

                int ends[2];
                Expect(out, ::pipe2(ends, O_CLOEXEC) == 0, "pipe");
                Expect(out, ::fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0, "flags");
                refused(::fcntl(ends[0], F_SETOWN, ringd), "F_SETOWN");
                const f_owner_ex owner{F_OWNER_PID, ringd};
                refused(::fcntl(ends[0], F_SETOWN_EX, &owner), "F_SETOWN_EX");
                refused(::fcntl(ends[0], F_SETSIG, SIGKILL), "F_SETSIG");
                const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
                int bytes = 0;
                Expect(out, ::ioctl(socket.get(), FIONREAD, &bytes) == 0 || errno == EINVAL,
                       "asks no socket");
                refused(::ioctl(socket.get(), FIOSETOWN, &ringd), "FIOSETOWN");
                refused(::ioctl(socket.get(), SIOCSPGRP, &ringd), "SIOCSPGRP");

                refused(::prctl(PR_SET_PDEATHSIG, 0), "outlives ringd");
              },
              files) == "");
  }
}

TEST_CASE("PutUpWalls: an engine that may look at files has all other walls") {
  const Folder folder;
  CHECK(Complaints(
            [&](std::string& out) {
              Expect(out, TryToOpen(folder.path + "/cluster.key", O_RDONLY) == 0, "reads no file");
              Expect(out, ::prctl(PR_GET_DUMPABLE) == 0, "dumpable");
              if (kFiltersCalls) Expect(out, ::kill(::getppid(), SIGTERM) < 0, "signals");
            },
            false) == "");
}

TEST_CASE("PutUpWalls: how a trainer ended is known behind the file wall once it is reaped") {
  const pid_t trainer = ::fork();
  if (trainer == 0) ::_exit(7);
  const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, trainer, 0)));
  REQUIRE(pidfd.valid());
  REQUIRE(::waitpid(trainer, nullptr, 0) == trainer);
  const auto look = [&] {
    ExitInquiry inquiry(trainer, pidfd.get());
    const ExitInquiry::State state = inquiry.Look();
    return state == ExitInquiry::State::kKnown ? DescribeExit(*inquiry.exit()) : "hidden";
  };
  // Linux before 6.15 shows it to nobody.
  CHECK(Behind({}, look) == look());
}

TEST_CASE("PutUpWalls: an abort still ends it by its signal") {
  auto channel = UnixSocketPair();
  REQUIRE(channel.ok());
  const pid_t child = ::fork();
  if (child == 0) {
    if (!PutUpWalls({.channel = channel->second.get()}).ok()) ::_exit(1);
    ::signal(SIGABRT, SIG_DFL);
    std::abort();
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGABRT);
  CHECK_FALSE(WCOREDUMP(status));
}

TEST_CASE("PutUpWalls: whoever started it ends it, also while it is stopped") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  UniqueFd reader(ends[0]), writer(ends[1]);
  const pid_t supervisor = ::fork();
  if (supervisor == 0) {
    const auto channel = UnixSocketPair();
    if (::fork() == 0) {
      if (!PutUpWalls({.channel = channel->second.get()}).ok()) ::_exit(1);
      static_cast<void>(!::write(writer.get(), "w", 1));
      ::raise(SIGSTOP);
      ::pause();
    }
    ::pause();
  }
  writer.Reset();
  char byte = 0;
  REQUIRE(::read(reader.get(), &byte, 1) == 1);
  ::kill(supervisor, SIGKILL);
  ::waitpid(supervisor, nullptr, 0);
  // The pipe ends with the last process that has it.
  pollfd end{reader.get(), POLLIN, 0};
  REQUIRE(::poll(&end, 1, 1000) == 1);
  CHECK(::read(reader.get(), &byte, 1) == 0);
}

TEST_CASE("PutUpWalls: refuses to begin without its supervisor") {
  constexpr int kRefused = 7;
  const pid_t child = ::fork();
  if (child == 0) {
    // The channel is made by a process that is not the parent.
    const auto foreign = UnixSocketPair();
    const auto status = PutUpWalls({.channel = foreign->first.get()}).status();
    const bool says_why = status.message().find("has ended") != std::string::npos;
    ::_exit(absl::IsAborted(status) && says_why ? kRefused : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == kRefused);
}

}  // namespace
}  // namespace ringd
