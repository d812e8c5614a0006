// Doors on the loopback interface, who stands behind them, and who comes to them.
#ifndef RINGD_TESTS_DAEMON_DOOR_DOOR_FIXTURE_H_
#define RINGD_TESTS_DAEMON_DOOR_DOOR_FIXTURE_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/config/host_port.h"
#include "daemon/door/door.h"
#include "proto/base/mutex.h"
#include "tests/count_descriptors.h"

namespace ringd {

inline constexpr std::chrono::seconds kDoorDeadline{20};

// Looks until `holds` returns true; false if that takes longer than any test should.
template <typename Holds>
bool Within(Holds holds, Clock::duration limit = kDoorDeadline) {
  const Clock::time_point deadline = Clock::now() + limit;
  while (!holds()) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

inline DoorKey KeyOf(const std::string& secret) {
  return KeyForControl(JobKey("", "job", secret, 0));
}
inline DoorSubject SubjectOfJob() { return ToSubject(ControlSubject{JobTag("job"), 0}); }

// Lets in whoever has the key, from the moment on when it has one.
class TestReception : public DoorReception {
 public:
  void Expect(const std::string& secret) {
    MutexLock lock(mutex_);
    key_ = KeyOf(secret);
  }
  void Refuse(DoorVerdict verdict) {
    MutexLock lock(mutex_);
    verdict_ = verdict;
  }
  // While it is locked nobody is considered, nor let in.
  Mutex& gate() { return mutex_; }
  int considered() {
    MutexLock lock(mutex_);
    return considered_;
  }
  std::vector<DoorVerdict> refused() {
    MutexLock lock(mutex_);
    return refused_;
  }
  // The next one who has come in.
  std::optional<DoorArrival> Await() {
    MutexLock lock(mutex_);
    const Clock::time_point deadline = Clock::now() + kDoorDeadline;
    while (arrivals_.empty()) {
      if (!changed_.WaitUntil(mutex_, deadline)) return std::nullopt;
    }
    DoorArrival arrival = std::move(arrivals_.front());
    arrivals_.erase(arrivals_.begin());
    return arrival;
  }
  bool empty() {
    MutexLock lock(mutex_);
    return arrivals_.empty();
  }

 private:
  void Consider(const DoorHello& hello, DoorConsideration& answer) override {
    MutexLock lock(mutex_);
    ++considered_;
    if (verdict_ != DoorVerdict::kWelcome) {
      answer.verdict = verdict_;
    } else if (key_.has_value() && hello.subject == SubjectOfJob()) {
      answer.verdict = DoorVerdict::kWelcome;
      answer.keys.push_back(*key_);
    }
  }
  void OnRefused(const DoorHello& /*hello*/, DoorVerdict verdict,
                 const std::string& /*from*/) override {
    MutexLock lock(mutex_);
    refused_.push_back(verdict);
  }
  void Admit(DoorArrival arrival) override {
    MutexLock lock(mutex_);
    arrivals_.push_back(std::move(arrival));
    changed_.NotifyAll();
  }

  Mutex mutex_;
  CondVar changed_;
  std::optional<DoorKey> key_ ABSL_GUARDED_BY(mutex_);
  DoorVerdict verdict_ ABSL_GUARDED_BY(mutex_) = DoorVerdict::kWelcome;
  int considered_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<DoorVerdict> refused_ ABSL_GUARDED_BY(mutex_);
  std::vector<DoorArrival> arrivals_ ABSL_GUARDED_BY(mutex_);
};

inline std::unique_ptr<Door> OpenDoor(DoorOptions options) {
  absl::StatusOr<std::unique_ptr<Door>> opened = Door::Open(std::move(options));
  INFO(opened.status());
  REQUIRE(opened.ok());
  return *std::move(opened);
}

// A door that serves control streams of "job".
class DoorHost {
 public:
  explicit DoorHost(const std::string& name, StrangerLimits limits = {},
                    const std::string& address = "127.0.0.1:0", std::uint32_t flags = 0) {
    door_ = OpenDoor({address, name, flags, {}, limits});
    door_->SetReception(DoorPurpose::kControl, reception_);
    door_->Start();
  }
  ~DoorHost() { door_->Stop(); }

  Door& door() { return *door_; }
  TestReception& reception() { return *reception_; }
  const std::string& address() const { return door_->address(); }

 private:
  const std::shared_ptr<TestReception> reception_ = std::make_shared<TestReception>();
  std::unique_ptr<Door> door_;
};

// What a dial has come to.
class DialOutcome {
 public:
  explicit DialOutcome(Door& door, const std::string& address, const std::string& secret,
                       Clock::duration patience = kDoorDeadline, std::uint32_t flags = 0,
                       std::uint64_t group = 1, uid_t user = 0)
      : DialOutcome(door, std::vector{address}, secret, patience, flags, group, user) {}
  DialOutcome(Door& door, std::vector<std::string> addresses, const std::string& secret,
              Clock::duration patience = kDoorDeadline, std::uint32_t flags = 0,
              std::uint64_t group = 1, uid_t user = 0)
      : state_(std::make_shared<State>()) {
    DialRequest request;
    request.group = group;
    request.user = user;
    request.purpose = DoorPurpose::kControl;
    request.subject = SubjectOfJob();
    request.key = KeyOf(secret);
    request.flags = flags;
    request.addresses = std::move(addresses);
    request.peer_name = "node-b";
    request.deadline = Clock::now() + patience;
    request.done = [state = state_](absl::StatusOr<DoorConnection> outcome) {
      MutexLock lock(state->mutex);
      state->outcome = std::move(outcome);
      state->times += 1;
      state->ended.NotifyAll();
    };
    door.Dial(std::move(request));
  }

  absl::StatusOr<DoorConnection> Await() {
    MutexLock lock(state_->mutex);
    const Clock::time_point deadline = Clock::now() + 2 * kDoorDeadline;
    while (state_->times == 0) {
      if (!state_->ended.WaitUntil(state_->mutex, deadline)) {
        return absl::InternalError("the dial did not end");
      }
    }
    return std::move(state_->outcome);
  }
  int times() {
    MutexLock lock(state_->mutex);
    return state_->times;
  }

 private:
  struct State {
    Mutex mutex;
    CondVar ended;
    int times = 0;
    absl::StatusOr<DoorConnection> outcome = absl::UnknownError("");
  };
  std::shared_ptr<State> state_;
};

// A connection of somebody who speaks for himself, from a loopback address of his choice.
class Caller {
 public:
  explicit Caller(const std::string& address, const std::string& from = "127.0.0.1")
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval patience{std::chrono::seconds(kDoorDeadline).count(), 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    const int one = 1;
    ::setsockopt(fd_.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
    sockaddr_in here{};
    here.sin_family = AF_INET;
    REQUIRE(::inet_pton(AF_INET, from.c_str(), &here.sin_addr) == 1);
    REQUIRE(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&here), sizeof(here)) == 0);
    const absl::StatusOr<HostPort> parts = ParseHostPort(address);
    REQUIRE(parts.ok());
    there_.sin_family = AF_INET;
    there_.sin_port = htons(parts->port);
    REQUIRE(::inet_pton(AF_INET, parts->host.c_str(), &there_.sin_addr) == 1);
  }
  bool Connect() {
    return ::connect(fd_.get(), reinterpret_cast<sockaddr*>(&there_), sizeof(there_)) == 0;
  }

  void Say(std::span<const std::byte> bytes) {
    // Nobody may listen any more.
    static_cast<void>(!::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }
  // Until there are so many, or the other side has closed.
  std::vector<std::byte> Hear(std::size_t count) {
    std::vector<std::byte> bytes(count);
    std::size_t heard = 0;
    while (heard < count) {
      const ssize_t got = ::recv(fd_.get(), bytes.data() + heard, count - heard, 0);
      if (got <= 0) break;
      heard += static_cast<std::size_t>(got);
    }
    bytes.resize(heard);
    return bytes;
  }
  // Whether the other side has hung up within the deadline; what it said before is skipped.
  bool HungUpOn() {
    std::array<std::byte, 256> bytes;
    for (;;) {
      const ssize_t got = ::recv(fd_.get(), bytes.data(), bytes.size(), 0);
      if (got == 0) return true;
      if (got < 0) return errno == ECONNRESET;
    }
  }
  // Whether it has hung up by now.
  bool IsHungUpOn() const {
    std::byte byte{};
    const ssize_t got = ::recv(fd_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN);
  }
  // The whole handshake.
  DoorState Enter(const std::string& secret) {
    DoorDialler dialler(KeyOf(secret), {DoorPurpose::kControl, SubjectOfJob(), 0, "node-a"});
    while (dialler.state() == DoorState::kTalking) {
      Say(dialler.outgoing());
      dialler.Sent(dialler.outgoing().size());
      const std::vector<std::byte> heard = Hear(dialler.room().size());
      if (heard.size() < dialler.room().size()) return DoorState::kTalking;
      std::copy(heard.begin(), heard.end(), dialler.room().begin());
      dialler.Received(heard.size());
    }
    return dialler.state();
  }

 private:
  UniqueFd fd_;
  sockaddr_in there_{};
};

inline std::unique_ptr<Caller> Call(const std::string& address,
                                    const std::string& from = "127.0.0.1") {
  auto caller = std::make_unique<Caller>(address, from);
  REQUIRE(caller->Connect());
  return caller;
}

// True if the two are ends of one connection on which nothing else has been said.
inline bool AreConnected(int a, int b) {
  const std::string word = "hello over there";
  if (::send(a, word.data(), word.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(word.size())) {
    return false;
  }
  pollfd readable{b, POLLIN, 0};
  if (::poll(&readable, 1, 20'000) != 1) return false;
  std::array<char, 64> heard{};
  const ssize_t got = ::recv(b, heard.data(), heard.size(), MSG_DONTWAIT);
  return got == static_cast<ssize_t>(word.size()) && std::string(heard.data(), word.size()) == word;
}

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_DOOR_DOOR_FIXTURE_H_
