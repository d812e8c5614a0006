// A peer in another process that is killed or stopped.
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>

#include "proto/base/unique_fd.h"
#include "tests/daemon/peers/peer_host.h"
#include "tests/daemon/peers/recorded_events.h"

namespace ringd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Another process of this program, which runs one of the hidden test cases below: threads do not
// survive a fork. Its standard input and output are pipes to here. Killed with the
// test.
class Child {
 public:
  explicit Child(const char* test_case) {
    int to_child[2];
    int from_child[2];
    REQUIRE(::pipe2(to_child, O_CLOEXEC) == 0);
    REQUIRE(::pipe2(from_child, O_CLOEXEC) == 0);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::dup2(to_child[0], STDIN_FILENO);
      ::dup2(from_child[1], STDOUT_FILENO);
      ::unsetenv("XML_OUTPUT_FILE");  // the report and the selection are the parent's
      ::unsetenv("TESTBRIDGE_TEST_ONLY");
      ::execl("/proc/self/exe", "child", test_case, nullptr);
      ::_exit(127);
    }
    ::close(to_child[0]);
    ::close(from_child[1]);
    input_.Reset(to_child[1]);
    output_.Reset(from_child[0]);
  }
  ~Child() {
    Signal(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  void Signal(int number) const { ::kill(pid_, number); }
  void Write(const std::string& line) const { WriteLine(input_.get(), line); }
  // Short if the child dies; the test runner bounds the wait for one that hangs.
  std::string Read() const { return ReadLine(output_.get()); }

  static void WriteLine(int fd, std::string line) {
    line += '\n';
    REQUIRE(::write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size()));
  }
  static std::string ReadLine(int fd) {
    std::string line;
    char byte = 0;
    while (::read(fd, &byte, 1) == 1 && byte != '\n') line.push_back(byte);
    return line;
  }

 private:
  pid_t pid_ = -1;
  UniqueFd input_;
  UniqueFd output_;
};

milliseconds Since(Clock::time_point start) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - start);
}

// The connection's end was seen, not the peer's silence.
bool WasClosed(const absl::Status& why) {
  return absl::IsUnavailable(why) &&
         std::string(why.message()).find("does not answer") == std::string::npos;
}

bool AnyEnded(const RecordedEvents::Records& records) {
  return !records.empty() && records.begin()->second.disconnected > 0;
}

}  // namespace

// Connects to the target it is given and does nothing more.
TEST_CASE("child: node", "[.]") {
  PeerHost node("");
  node.Connect(Child::ReadLine(STDIN_FILENO), seconds(30));
  ::sleep(60);
  ::_exit(0);
}

TEST_CASE("child: coordinator", "[.]") {
  PeerHost host;
  Child::WriteLine(STDOUT_FILENO, host.address());
  REQUIRE(host.events.WaitFor([](const auto& records) { return !records.empty(); }));
  host.network->Send(host.events.All().begin()->first, v1::CoordinatorMessage());
  ::sleep(60);
  ::_exit(0);
}

TEST_CASE("lost peer: the coordinator notices a killed node at once") {
  const Child node("child: node");
  PeerHost host;
  node.Write(host.address());
  REQUIRE(host.events.WaitFor([](const auto& records) { return !records.empty(); }));
  node.Signal(SIGKILL);
  REQUIRE(host.events.WaitFor(AnyEnded, seconds(30)));
  CHECK(WasClosed(host.events.All().begin()->second.why));
}

TEST_CASE("lost peer: a node notices a killed coordinator at once") {
  const Child coordinator("child: coordinator");
  PeerHost node("");
  const StreamId opened = node.Connect(coordinator.Read(), seconds(30));
  // The stream stands.
  REQUIRE(node.events.WaitFor(
      [](const auto& records) {
        return !records.empty() && !records.begin()->second.from_coordinator.empty();
      },
      seconds(30)));
  CHECK_FALSE(AnyEnded(node.events.All()));
  coordinator.Signal(SIGKILL);
  REQUIRE(node.events.WaitFor(AnyEnded, seconds(30)));
  CHECK(WasClosed(node.events.Get(opened).why));
}

TEST_CASE("lost peer: a peer that falls silent is noticed, and may be so for a while") {
  const Child node("child: node");
  SocketPeerNetworkOptions options;
  options.stream.process_patience = seconds(5);
  PeerHost host("secret", options);
  node.Write(host.address());
  REQUIRE(host.events.WaitFor([](const auto& records) { return !records.empty(); }));
  const Clock::time_point start = Clock::now();
  node.Signal(SIGSTOP);  // its kernel still answers, as a lost link would not
  REQUIRE(host.events.WaitFor(AnyEnded, seconds(30)));
  CHECK(Since(start) >= seconds(4));  // it had been heard of shortly before
  CHECK(host.events.All().begin()->second.why.code() == absl::StatusCode::kDeadlineExceeded);
}

}  // namespace ringd
