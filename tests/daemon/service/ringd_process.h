// A real ringd in a process and a folder of its own, with a stand-in for systemd.
#ifndef RINGD_TESTS_DAEMON_SERVICE_RINGD_PROCESS_H_
#define RINGD_TESTS_DAEMON_SERVICE_RINGD_PROCESS_H_

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "proto/base/clock.h"
#include "proto/base/unique_fd.h"

namespace ringd {

inline std::string ReadWholeFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

class RingdProcess {
 public:
  RingdProcess() {
    char folder[] = "/tmp/ringd-XXXXXX";
    folder_ = mkdtemp(folder);
    notify_.Reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, notify_path().c_str(), sizeof(address.sun_path) - 1);
    REQUIRE(::bind(notify_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  }
  ~RingdProcess() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    std::filesystem::remove_all(folder_);
  }

  std::string socket() const { return folder_ + "/s"; }
  std::string ready_file() const { return folder_ + "/ready"; }
  std::string file(const std::string& name) const { return folder_ + "/" + name; }
  std::string log() const { return ReadWholeFile(folder_ + "/log"); }
  pid_t pid() const { return pid_; }

  // Starts it with a socket and any port; `arguments` come after these.
  void Start(std::vector<std::string> arguments = {}) {
    std::vector<std::string> all = {"daemon/ringd",   "--socket",      socket(),
                                    "--peer-address", "127.0.0.1:0",   "--ready-file",
                                    ready_file(),     "--arena-bytes", "1MiB"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    Run(all);
  }

  // Starts it with exactly these arguments, the first its path from the runfiles' root.
  void Run(std::vector<std::string> arguments) {
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ != 0) return;
    const int out = ::open((folder_ + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(out, 1);
    ::dup2(out, 2);
    ::setenv("NOTIFY_SOCKET", notify_path().c_str(), 1);
    ::setenv("WATCHDOG_USEC", "300000", 1);
    ::unsetenv("WATCHDOG_PID");
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }

  // Waits until systemd was told a line that begins like this; false after 20 s.
  bool WaitForNotification(const std::string& wanted) {
    const Clock::time_point deadline = Clock::now() + std::chrono::seconds(20);
    while (Clock::now() < deadline) {
      pollfd entry{notify_.get(), POLLIN, 0};
      if (::poll(&entry, 1, 100) <= 0) continue;
      char buffer[4096];
      const ssize_t count = ::recv(notify_.get(), buffer, sizeof(buffer), 0);
      if (count > 0 && std::string(buffer, static_cast<std::size_t>(count)).find(wanted) == 0) {
        return true;
      }
    }
    return false;
  }

  void Signal(int signal) { REQUIRE(::kill(pid_, signal) == 0); }

  // Its exit code, or -1 if a signal ended it or it runs after 20 s.
  int WaitForExit() {
    const Clock::time_point deadline = Clock::now() + std::chrono::seconds(20);
    while (Clock::now() < deadline) {
      int status = 0;
      if (::waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
      }
      ::poll(nullptr, 0, 5);
    }
    return -1;
  }

 private:
  std::string notify_path() const { return folder_ + "/n"; }

  std::string folder_;
  UniqueFd notify_;
  pid_t pid_ = -1;
};

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_SERVICE_RINGD_PROCESS_H_
