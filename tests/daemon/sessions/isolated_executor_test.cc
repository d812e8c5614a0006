#include "daemon/sessions/isolated_executor.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "proto/base/clock.h"
#include "proto/base/unique_fd.h"

namespace ringd {
namespace {

// Far more than a test may take.
constexpr int kLingerSeconds = 600;
constexpr std::chrono::seconds kSoon{10};

// A TCP socket that nobody else holds, with more on its way than the other end, which does not
// read, has room for; to be closed it wants ten minutes.
struct Lingering {
  Lingering() {
    const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    socklen_t length = sizeof(address);
    REQUIRE(::bind(listener.get(), any, length) == 0);
    REQUIRE(::listen(listener.get(), 1) == 0);
    REQUIRE(::getsockname(listener.get(), any, &length) == 0);
    full = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(full.get(), any, length) == 0);
    other = UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    REQUIRE(other.valid());
    const std::vector<char> bytes(1 << 16);
    while (::send(full.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
    }
    const linger option{1, kLingerSeconds};
    REQUIRE(::setsockopt(full.get(), SOL_SOCKET, SO_LINGER, &option, sizeof(option)) == 0);
  }

  UniqueFd full;
  UniqueFd other;
};

// Sends `fd` to the other end of `socket`, where it is not received, and closes it.
void SendAway(int socket, UniqueFd fd) {
  char byte = 0;
  iovec part{&byte, 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  const int number = fd.get();
  std::memcpy(CMSG_DATA(rights), &number, sizeof(number));
  REQUIRE(::sendmsg(socket, &message, MSG_NOSIGNAL) == 1);
}

bool Empty(const IsolatedExecutor& executor) {
  const auto end = Clock::now() + kSoon;
  while (executor.backlog() > 0 && Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return executor.backlog() == 0;
}

TEST_CASE("IsolatedExecutor: destroys what nobody else holds, on another thread") {
  std::thread::id where;
  struct Noted {
    std::thread::id* where;
    ~Noted() { *where = std::this_thread::get_id(); }
  };
  auto kept = std::make_shared<int>(1);
  {
    IsolatedExecutor executor;
    auto noted = std::make_shared<Noted>();
    noted->where = &where;
    executor.Destroy(std::move(noted));
    executor.Destroy(kept);
    executor.Destroy(nullptr);
    CHECK(Empty(executor));
  }
  CHECK(where != std::thread::id());
  CHECK(where != std::this_thread::get_id());
  CHECK(kept.use_count() == 1);
}

TEST_CASE("IsolatedExecutor: destroys what is left when it ends") {
  auto kept = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = kept;
  {
    IsolatedExecutor executor;
    executor.Destroy(std::move(kept));
  }
  CHECK(seen.expired());
}

TEST_CASE("IsolatedExecutor: is not kept by a socket that lingers") {
  Lingering socket;
  const auto begin = Clock::now();
  {
    IsolatedExecutor executor;
    executor.Destroy(std::make_shared<UniqueFd>(std::move(socket.full)));
    CHECK(Clock::now() - begin < kSoon);
    CHECK(Empty(executor));
  }
  CHECK(Clock::now() - begin < kSoon);
}

TEST_CASE(
    "IsolatedExecutor: is not kept by sockets that were sent through another one, and never "
    "received") {
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  const UniqueFd theirs(ends[0]);
  UniqueFd ours(ends[1]);
  std::vector<Lingering> sockets(20);
  for (Lingering& socket : sockets) SendAway(theirs.get(), std::move(socket.full));
  IsolatedExecutor executor;
  executor.Destroy(std::make_shared<UniqueFd>(std::move(ours)));
  CHECK(Empty(executor));
}

TEST_CASE("IsolatedExecutor: runs tasks in their order") {
  std::vector<int> order;
  {
    IsolatedExecutor executor;
    for (int i = 0; i < 3; ++i) executor.Run([&order, i] { order.push_back(i); });
  }
  CHECK(order == std::vector<int>{0, 1, 2});
}

TEST_CASE("IsolatedExecutor: tasks that are held up keep no other from running") {
  constexpr int kStuck = 3;
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  std::atomic<bool> ran = false;
  std::atomic<int> ended = 0;
  IsolatedExecutor executor;
  for (int i = 0; i < kStuck; ++i) {
    executor.Run([released, &ended] {
      released.wait_for(2 * kSoon);
      ++ended;
    });
  }
  executor.Run([&ran] { ran = true; });
  const auto end = Clock::now() + kSoon;
  while (!ran && Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    executor.Run([] {});
  }
  CHECK(ran);
  CHECK(ended == 0);
  CHECK(executor.backlog() >= kStuck);
  release.set_value();
  CHECK(Empty(executor));
  CHECK(ended == kStuck);
}

}  // namespace
}  // namespace ringd
