// A link of the control chain, which does without ringd what a job over two nodes does with it: in
// each step bytes go through four processes on two nodes, and back. What makes its steps late makes
// a job's steps late, too.
//
//   soak_control LISTEN_PORT NEXT_HOST NEXT_PORT
//
// LISTEN_PORT 0: the first link, which begins a step every 30 ms and prints a line for each, as
// trainers do: S STEP BEGIN_NS END_NS WAITED_NS. NEXT_PORT 0: the last, which sends back what
// comes. Each adds to WAITED_NS how long it has waited for a processor itself. Ends when its
// neighbour does.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/soak/programs/thread_wait.h"

namespace ringd::soak {
namespace {

constexpr std::size_t kBytes = 400'000;
constexpr std::int64_t kPeriodNanos = 30'000'000;

struct Header {
  std::int64_t step;
  std::int64_t waited_ns;
};

[[noreturn]] void Fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

int Prepared(int socket) {
  const int yes = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  return socket;
}

sockaddr_in Address(const char* host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (::inet_pton(AF_INET, host, &address.sin_addr) != 1) Fail(host);
  return address;
}

int AcceptOne(int port) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  const sockaddr_in address = Address("0.0.0.0", port);
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(listener, 1) != 0) {
    Fail("listen");
  }
  return Prepared(::accept(listener, nullptr, nullptr));
}

int Connect(const char* host, int port) {
  const sockaddr_in address = Address(host, port);
  for (int i = 0; i < 1000; ++i) {
    const int connection = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
      return Prepared(connection);
    }
    ::close(connection);
    SleepUntil(NowNanos() + 10'000'000);
  }
  Fail("connect");
}

// False at the end of the connection.
bool Receive(int socket, std::vector<char>& message) {
  const ssize_t got = ::recv(socket, message.data(), message.size(), MSG_WAITALL);
  return got == static_cast<ssize_t>(message.size());
}

bool Send(int socket, const std::vector<char>& message) {
  std::size_t sent = 0;
  while (sent < message.size()) {
    const ssize_t now = ::send(socket, message.data() + sent, message.size() - sent, MSG_NOSIGNAL);
    if (now <= 0) return false;
    sent += static_cast<std::size_t>(now);
  }
  return true;
}

Header& HeaderOf(std::vector<char>& message) { return *reinterpret_cast<Header*>(message.data()); }

void Begin(int next) {
  std::vector<char> message(kBytes);
  std::int64_t begin = NowNanos();
  for (std::int64_t step = 0;; ++step) {
    const std::int64_t waited = WaitedNanos();
    begin = NowNanos();
    HeaderOf(message) = {step, 0};
    if (!Send(next, message) || !Receive(next, message)) return;
    const std::int64_t end = NowNanos();
    const std::int64_t together = HeaderOf(message).waited_ns + WaitedNanos() - waited;
    std::printf("S %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "\n", step, begin, end, together);
    std::fflush(stdout);
    SleepUntil(begin + kPeriodNanos);
  }
}

// Passes what comes from `from` on to `to`; false at the end of either.
bool PassOn(int from, int to, std::vector<char>& message, std::int64_t& waited) {
  if (!Receive(from, message)) return false;
  const std::int64_t now = WaitedNanos();
  HeaderOf(message).waited_ns += now - waited;
  waited = now;
  return Send(to, message);
}

}  // namespace
}  // namespace ringd::soak

int main(int count, char** arguments) {
  namespace soak = ringd::soak;
  if (count != 4) return 2;
  const int listen_port = std::atoi(arguments[1]);
  const int next_port = std::atoi(arguments[3]);
  const int before = listen_port == 0 ? -1 : soak::AcceptOne(listen_port);
  const int next = next_port == 0 ? -1 : soak::Connect(arguments[2], next_port);
  if (before < 0) {
    soak::Begin(next);
    return 0;
  }
  std::vector<char> message(soak::kBytes);
  std::int64_t waited = soak::WaitedNanos();
  if (next < 0) {
    while (soak::PassOn(before, before, message, waited)) continue;
  } else {
    while (soak::PassOn(before, next, message, waited) &&
           soak::PassOn(next, before, message, waited)) {
      continue;
    }
  }
  return 0;
}
