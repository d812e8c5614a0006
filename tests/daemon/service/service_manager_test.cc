#include "daemon/service/service_manager.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "tests/count_descriptors.h"

namespace ringd {
namespace {

// The receiving end, as systemd has it.
class Receiver {
 public:
  // `name` as in NOTIFY_SOCKET.
  explicit Receiver(const std::string& name) : socket_(::socket(AF_UNIX, SOCK_DGRAM, 0)) {
    address_.sun_family = AF_UNIX;
    std::memcpy(address_.sun_path, name.data(), name.size());
    if (name.front() == '@') address_.sun_path[0] = '\0';
    length_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    REQUIRE(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address_), length_) == 0);
    ::setenv("NOTIFY_SOCKET", name.c_str(), 1);
  }
  ~Receiver() {
    ::unsetenv("NOTIFY_SOCKET");
    ::unsetenv("WATCHDOG_USEC");
  }

  // The next message; empty if there is none.
  std::string Next() {
    char buffer[4096];
    const ssize_t count = ::recv(socket_.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    return count < 0 ? std::string() : std::string(buffer, static_cast<std::size_t>(count));
  }
  // Fills the queue, so that nobody can send any more.
  void Fill() {
    const UniqueFd sender(::socket(AF_UNIX, SOCK_DGRAM, 0));
    while (::sendto(sender.get(), "x", 1, MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&address_),
                    length_) == 1) {
    }
    REQUIRE(errno == EAGAIN);
  }
  void Empty() {
    while (!Next().empty()) {
    }
  }

 private:
  UniqueFd socket_;
  sockaddr_un address_{};
  socklen_t length_ = 0;
};

struct Folder {
  Folder() : path(::mkdtemp(name)) {}
  ~Folder() { std::filesystem::remove_all(path); }
  char name[20] = "/tmp/ringd-XXXXXX";
  std::string path;
};

TEST_CASE("ServiceManager: a start that takes long says how long") {
  const std::string name = "@ringd-service-manager-test-start";
  Receiver receiver(name);
  ServiceManager manager;
  manager.Extend(std::chrono::seconds(330));
  CHECK(receiver.Next() == "EXTEND_TIMEOUT_USEC=330000000");
}

TEST_CASE("ServiceManager: says what state ringd is in, by path or by an abstract name") {
  const Folder folder;
  const bool abstract = GENERATE(false, true);
  Receiver receiver(abstract ? "@ringd-test-" + std::to_string(::getpid()) : folder.path + "/n");
  ServiceManager manager;
  manager.Ready("serving");
  CHECK(receiver.Next() == "READY=1\nSTATUS=serving");
  manager.Stopping("draining");
  CHECK(receiver.Next() == "STOPPING=1\nSTATUS=draining");
  CHECK(receiver.Next().empty());
}

TEST_CASE("ServiceManager: feeds the watchdog while the heart beats, thrice in its time") {
  const Folder folder;
  Receiver receiver(folder.path + "/n");
  ::setenv("WATCHDOG_USEC", "300000", 1);
  ServiceManager manager;
  Clock::time_point now = Clock::now();
  manager.Watch(1, now);
  CHECK(receiver.Next() == "WATCHDOG=1");
  manager.Watch(2, now + std::chrono::milliseconds(99));
  CHECK(receiver.Next().empty());
  manager.Watch(1, now + std::chrono::milliseconds(100));
  CHECK(receiver.Next().empty());
  manager.Watch(2, now + std::chrono::milliseconds(100));
  CHECK(receiver.Next() == "WATCHDOG=1");
}

TEST_CASE("ServiceManager: a full queue holds nobody up, and what it could not take comes later") {
  const Folder folder;
  Receiver receiver(folder.path + "/n");
  ::setenv("WATCHDOG_USEC", "300000", 1);
  ServiceManager manager;
  receiver.Fill();
  Clock::time_point now = Clock::now();
  manager.Ready("serving");
  for (std::uint64_t beat = 1; beat <= 100; ++beat) {
    manager.Watch(beat, now += std::chrono::milliseconds(100));
  }
  manager.Stopping("draining");
  receiver.Empty();
  manager.Watch(100, now);
  CHECK(receiver.Next() == "READY=1\nSTATUS=serving\nSTOPPING=1\nSTATUS=draining");
  manager.Watch(101, now + std::chrono::milliseconds(100));
  CHECK(receiver.Next() == "WATCHDOG=1");
  CHECK(receiver.Next().empty());
}

TEST_CASE("ServiceManager: without a receiver's name there is no socket, and nothing is kept") {
  const Folder folder;
  const std::size_t before = CountDescriptors();
  ServiceManager manager;
  manager.Ready("serving");
  manager.Watch(1, Clock::now());
  CHECK(CountDescriptors() == before);
}

TEST_CASE("ServiceManager: what a receiver that has gone did not hear is not told to the next") {
  const Folder folder;
  const std::string name = folder.path + "/n";
  std::filesystem::remove((Receiver(name), name));
  ::setenv("NOTIFY_SOCKET", name.c_str(), 1);
  ServiceManager manager;
  manager.Ready("serving");
  manager.Watch(1, Clock::now());
  CHECK_FALSE(std::filesystem::exists(name));

  Receiver next(name);
  manager.Watch(2, Clock::now());
  CHECK(next.Next().empty());
  manager.Stopping("draining");
  CHECK(next.Next() == "STOPPING=1\nSTATUS=draining");
}

}  // namespace
}  // namespace ringd
