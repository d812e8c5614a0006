// Backends between processes, which can be killed and stopped.
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/engine_process/walls.h"
#include "proto/base/clock.h"
#include "proto/base/unique_fd.h"
#include "tests/backends/backend_world.h"

namespace ringd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

bool SendBytes(int fd, const std::string& bytes) {
  const auto length = static_cast<std::uint32_t>(bytes.size());
  return ::write(fd, &length, sizeof(length)) == sizeof(length) &&
         ::write(fd, bytes.data(), length) == static_cast<ssize_t>(length);
}

bool ReceiveBytes(int fd, std::string& bytes) {
  std::uint32_t length = 0;
  if (::recv(fd, &length, sizeof(length), MSG_WAITALL) != sizeof(length)) return false;
  bytes.resize(length);
  return ::recv(fd, bytes.data(), length, MSG_WAITALL) == static_cast<ssize_t>(length);
}

// What a child sees of its world.
struct ChildNode {
  Transport& transport;
  Communicator& communicator;
  int node;
  int parent_fd;  // readable when the parent says something

  // Sleeps when there is nothing to do. False after `limit`.
  bool RunUntil(const std::function<bool()>& done, milliseconds limit = seconds(20)) const {
    const Clock::time_point deadline = Clock::now() + limit;
    while (!done()) {
      if (Clock::now() > deadline) return false;
      if (transport.Progress() > 0 || !transport.Arm()) continue;
      pollfd event{transport.event_fd(), POLLIN, 0};
      ::poll(&event, 1, 20);
    }
    return true;
  }

  bool AllReduceOnes(OperationId id, std::size_t count, float expected) const {
    std::vector<float> buffer(count, 1.0f);
    CollectiveRequest request;
    request.id = id;
    request.element_count = count;
    request.buffer = reinterpret_cast<std::byte*>(buffer.data());
    if (!communicator.TryPost(request)) return false;
    Completion completion[1];
    if (!RunUntil([&] { return communicator.Poll(completion) == 1; })) return false;
    return completion[0].outcome == CollectiveOutcome::kDone &&
           buffer == std::vector<float>(count, expected);
  }

  // A process that ends takes down what it has sent but the kernel not delivered; so all stay until
  // all have their results.
  int StayUntilAllAreDone() const {
    Tell('d');
    const bool told = RunUntil([this] {
      pollfd event{parent_fd, POLLIN, 0};
      return ::poll(&event, 1, 0) == 1;
    });
    return told ? 0 : 80;
  }

  void Tell(char what) const {
    if (::write(parent_fd, &what, 1) != 1) ::_exit(99);
  }
};

using ChildBody = std::function<int(const ChildNode&)>;

// What carries the bytes.
struct Carrier {
  BackendKind kind = BackendKind::kUcx;
  TransportOptions options = {};
  bool behind_walls = false;  // those of an engine
};

Carrier AnyCarrier() { return {GENERATE(BackendKind::kUcx, BackendKind::kTcp)}; }

int RunChild(int node, int node_count, int parent_fd, const Carrier& carrier,
             const ChildBody& body) {
  if (carrier.behind_walls && !PutUpWalls({.channel = parent_fd}).ok()) return 90;
  const auto transport = MakeTransport(carrier.kind, carrier.options);
  if (!SendBytes(parent_fd, transport->LocalAddress())) return 91;
  CommunicatorSpec spec;
  spec.wire_id = 4711;
  spec.self = NodeIndex(node);
  for (int i = 0; i < node_count; ++i) {
    std::string address;
    if (!ReceiveBytes(parent_fd, address)) return 92;
    spec.addresses.push_back(address);
    spec.node_names.push_back(absl::StrCat("node-", i));
  }
  auto communicator = transport->CreateCommunicator(spec);
  if (!communicator.ok()) return 94;
  const int code = body({*transport, **communicator, node, parent_fd});
  communicator->reset();
  return code;
}

// N processes that know each other's addresses. Ends them all when it goes.
class Children {
 public:
  Children(int node_count, const Carrier& carrier, const ChildBody& body) {
    std::vector<std::string> addresses;
    for (int node = 0; node < node_count; ++node) {
      int ends[2];
      REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
      const pid_t pid = ::fork();
      REQUIRE(pid >= 0);
      if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        ::close(ends[0]);
        ::_exit(RunChild(node, node_count, ends[1], carrier, body));
      }
      ::close(ends[1]);
      pids_.push_back(pid);
      sockets_.emplace_back(ends[0]);
    }
    for (auto& socket : sockets_) {
      addresses.emplace_back();
      REQUIRE(ReceiveBytes(socket.get(), addresses.back()));
    }
    for (auto& socket : sockets_) {
      for (const std::string& address : addresses) REQUIRE(SendBytes(socket.get(), address));
    }
  }

  ~Children() {
    for (const pid_t pid : pids_) {
      if (pid > 0) {
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
      }
    }
  }

  void Kill(int node, int signal) { ::kill(pids_[static_cast<std::size_t>(node)], signal); }

  void Say(int node, char what) {
    REQUIRE(::write(sockets_[static_cast<std::size_t>(node)].get(), &what, 1) == 1);
  }

  // Waits until `node` says something; 0 if it doesn't in time.
  char Hear(int node, milliseconds limit = seconds(20)) {
    pollfd event{sockets_[static_cast<std::size_t>(node)].get(), POLLIN, 0};
    char what = 0;
    if (::poll(&event, 1, static_cast<int>(limit.count())) != 1) return 0;
    return ::read(event.fd, &what, 1) == 1 ? what : '\0';
  }

  // The exit code, or 1000 + the signal; -1 if it does not end in time.
  int Wait(int node, milliseconds limit = seconds(30)) {
    pid_t& pid = pids_[static_cast<std::size_t>(node)];
    const Clock::time_point deadline = Clock::now() + limit;
    int status = 0;
    while (::waitpid(pid, &status, WNOHANG) == 0) {
      if (Clock::now() > deadline) return -1;
      std::this_thread::sleep_for(milliseconds(2));
    }
    pid = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

  // Expects all children to say that they are done, and then to end.
  void EndWell(int node_count) {
    for (int node = 0; node < node_count; ++node) CHECK(Hear(node) == 'd');
    for (int node = 0; node < node_count; ++node) Say(node, 'g');
    for (int node = 0; node < node_count; ++node) CHECK(Wait(node) == 0);
  }

 private:
  std::vector<pid_t> pids_;
  std::vector<UniqueFd> sockets_;
};

}  // namespace

TEST_CASE("Backend: processes reduce over TCP") {
  const Carrier carrier = AnyCarrier();
  const int node_count = GENERATE(2, 3, 4);
  INFO(NameOf(carrier.kind) << ", " << node_count << " nodes");
  Children children(node_count, carrier, [node_count](const ChildNode& child) {
    const auto expected = static_cast<float>(node_count);
    for (std::uint32_t i = 0; i < 20; ++i) {
      if (!child.AllReduceOnes({0, i}, i % 2 == 0 ? 5 : 700'001, expected)) return 1;
    }
    return child.StayUntilAllAreDone();
  });
  children.EndWell(node_count);
}

TEST_CASE("UCX: processes of one host reduce over what UCX finds best, which is shared memory") {
  TransportOptions options;
  options.transports = "all";
  Children children(2, {BackendKind::kUcx, options}, [](const ChildNode& child) {
    for (std::uint32_t i = 0; i < 20; ++i) {
      if (!child.AllReduceOnes({0, i}, i % 2 == 0 ? 5 : 700'001, 2.0f)) return 1;
    }
    const auto neighbours = child.communicator.Statistics().neighbours;
    if (neighbours.size() != 1) return 2;
    if (neighbours[0].line.transports.find("/memory") == std::string::npos) return 3;
    return child.StayUntilAllAreDone();
  });
  children.EndWell(2);
}

TEST_CASE("Backend: engines reduce behind their walls, also over shared memory") {
  const std::string transports = GENERATE("tcp,self", "all");
  const Carrier carrier{transports == "all" ? BackendKind::kUcx : AnyCarrier().kind,
                        {.transports = transports},
                        /*behind_walls=*/true};
  INFO(NameOf(carrier.kind) << ", " << transports);
  Children children(2, carrier, [&](const ChildNode& child) {
    for (std::uint32_t i = 0; i < 20; ++i) {
      if (!child.AllReduceOnes({0, i}, i % 2 == 0 ? 5 : 700'001, 2.0f)) return 1;
    }
    const auto neighbours = child.communicator.Statistics().neighbours;
    if (neighbours.size() != 1) return 2;
    const bool in_memory = neighbours[0].line.transports.find("/memory") != std::string::npos;
    if (in_memory != (transports == "all")) return 3;
    return child.StayUntilAllAreDone();
  });
  children.EndWell(2);
}

TEST_CASE("Backend: a node that is killed is named by its neighbours within a second") {
  const Carrier carrier = AnyCarrier();
  const bool in_flight = GENERATE(false, true);
  INFO(NameOf(carrier.kind) << (in_flight ? ", in flight" : ", idle"));
  Children children(3, carrier, [in_flight](const ChildNode& child) {
    if (!child.AllReduceOnes({0, 0}, 300'000, 3.0f)) return 1;
    if (child.node == 2) {
      child.Tell('r');
      child.RunUntil([] { return false; });
      return 2;
    }
    std::vector<float> buffer(5'000'000, 1.0f);
    if (in_flight) {
      CollectiveRequest request;
      request.id = {0, 1};
      request.element_count = buffer.size();
      request.buffer = reinterpret_cast<std::byte*>(buffer.data());
      if (!child.communicator.TryPost(request)) return 3;
      for (int i = 0; i < 10; ++i) child.transport.Progress();
    }
    child.Tell('r');
    if (!child.RunUntil([&] { return !child.communicator.health().ok(); })) return 4;
    child.Tell('l');
    if (child.communicator.lost_node() != NodeIndex(2)) return 5;
    if (child.communicator.health().code() != absl::StatusCode::kUnavailable) return 6;
    // The other survivor must not see this one's end before that of node 2.
    if (!in_flight) return child.StayUntilAllAreDone();
    Completion completion[2];
    if (!child.RunUntil([&] { return child.communicator.Poll(completion) == 1; })) return 7;
    if (completion[0].outcome != CollectiveOutcome::kPeerLost) return 8;
    return child.StayUntilAllAreDone();
  });
  for (int node = 0; node < 3; ++node) REQUIRE(children.Hear(node) == 'r');
  children.Kill(2, SIGKILL);
  const Clock::time_point killed = Clock::now();
  CHECK(children.Hear(0) == 'l');
  CHECK(children.Hear(1) == 'l');
  CHECK(Clock::now() - killed < seconds(10));
  children.EndWell(2);
}

TEST_CASE("Backend: a node that is stopped for a while holds the others up and then goes on") {
  const Carrier carrier = AnyCarrier();
  INFO(NameOf(carrier.kind));
  Children children(2, carrier, [](const ChildNode& child) {
    child.Tell('r');
    for (std::uint32_t i = 0; i < 30; ++i) {
      if (!child.AllReduceOnes({0, i}, 1'000'000, 2.0f)) return 1;
    }
    return child.StayUntilAllAreDone();
  });
  REQUIRE(children.Hear(0) == 'r');
  REQUIRE(children.Hear(1) == 'r');
  children.Kill(1, SIGSTOP);
  std::this_thread::sleep_for(milliseconds(500));
  children.Kill(1, SIGCONT);
  children.EndWell(2);
}

TEST_CASE(
    "Backend: what was sent to a stopped node does not keep an aborted communicator's buffers for "
    "ever") {
  const Carrier carrier = AnyCarrier();
  INFO(NameOf(carrier.kind));
  Children children(2, carrier, [](const ChildNode& child) {
    if (!child.AllReduceOnes({0, 0}, 1000, 2.0f)) return 1;
    child.Tell('r');
    if (child.node == 1) {
      child.RunUntil([] { return false; });
      return 2;
    }
    char go = 0;
    if (::read(child.parent_fd, &go, 1) != 1) return 3;
    std::vector<float> buffer(20'000'000, 1.0f);
    CollectiveRequest request;
    request.id = {0, 1};
    request.element_count = buffer.size();
    request.buffer = reinterpret_cast<std::byte*>(buffer.data());
    if (!child.communicator.TryPost(request)) return 4;
    child.RunUntil([] { return false; }, milliseconds(100));
    child.communicator.Abort("the job has ended");
    // Destroying it ends everything within two seconds, whatever the other side does.
    return 0;
  });
  REQUIRE(children.Hear(0) == 'r');
  REQUIRE(children.Hear(1) == 'r');
  children.Kill(1, SIGSTOP);
  const char go = 'g';
  children.Say(0, go);
  CHECK(children.Wait(0, seconds(20)) == 0);
}

}  // namespace ringd
