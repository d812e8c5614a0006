// What strangers can take of a door: places, time, bytes, descriptors.
#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "tests/daemon/door/door_fixture.h"

namespace ringd {
namespace {

constexpr StrangerLimits kShort{.most = 256, .patience = std::chrono::milliseconds(300)};
constexpr StrangerLimits kFew{.most = 8, .patience = kDoorDeadline};

std::vector<std::byte> SomeHello() {
  DoorHello hello;
  hello.purpose = DoorPurpose::kControl;
  hello.subject = SubjectOfJob();
  const DoorHelloBytes bytes = Encode(hello);
  return {bytes.begin(), bytes.end()};
}

std::size_t CountHungUpOn(const std::vector<std::unique_ptr<Caller>>& callers) {
  return static_cast<std::size_t>(std::count_if(
      callers.begin(), callers.end(), [](const auto& caller) { return caller->IsHungUpOn(); }));
}

// No descriptor can be opened while it lives.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit less = before_;
    const UniqueFd next(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0));
    less.rlim_cur = static_cast<rlim_t>(next.get());
    ::setrlimit(RLIMIT_NOFILE, &less);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

}  // namespace

TEST_CASE("Door: who says nothing, or not enough, is hung up on when its time is over") {
  DoorHost host("node-b", kShort);
  host.reception().Expect("secret");
  const auto silent = Call(host.address());
  const auto slow = Call(host.address());
  const std::vector<std::byte> hello = SomeHello();
  slow->Say(std::span(hello).first(100));
  const auto unproved = Call(host.address());
  unproved->Say(SomeHello());
  CHECK(unproved->Hear(kDoorChallengeBytes).size() == kDoorChallengeBytes);
  CHECK(silent->HungUpOn());
  CHECK(slow->HungUpOn());
  CHECK(unproved->HungUpOn());
  CHECK(host.reception().considered() == 0);
  // Nothing of them is left behind.
  CHECK(Call(host.address())->Enter("secret") == DoorState::kWelcome);
}

TEST_CASE("Door: who speaks byte by byte gets no more time") {
  DoorHost host("node-b", kShort);
  const auto slow = Call(host.address());
  const std::vector<std::byte> hello = SomeHello();
  std::size_t said = 0;
  const Clock::time_point began = Clock::now();
  CHECK(Within([&] {
    // Never the last one: it would be answered.
    if (said + 1 < hello.size()) slow->Say(std::span(hello).subspan(said++, 1));
    return slow->IsHungUpOn();
  }));
  CHECK(Clock::now() - began >= kShort.patience);
}

TEST_CASE("Door: what is no ringd is hung up on at once") {
  DoorHost host("node-b", kFew);
  const auto other = Call(host.address());
  other->Say(std::as_bytes(std::span("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")));
  CHECK(other->HungUpOn());
}

TEST_CASE("Door: a wrong proof is told and not waited for; more than the messages is not read") {
  DoorHost host("node-b", kFew);
  host.reception().Expect("secret");
  const auto caller = Call(host.address());
  caller->Say(SomeHello());
  CHECK(caller->Hear(kDoorChallengeBytes).size() == kDoorChallengeBytes);
  const std::vector<std::byte> much(64 << 10);
  caller->Say(much);
  const std::vector<std::byte> verdict = caller->Hear(kDoorVerdictBytes);
  REQUIRE(verdict.size() == kDoorVerdictBytes);
  CHECK(LoadVerdict(std::span(verdict).first<4>()) == DoorVerdict::kWrongKey);
  CHECK(caller->HungUpOn());
}

TEST_CASE("Door: another version's dialler hears this one's version, however short its Hello") {
  DoorHost host("node-b", kFew);
  const auto caller = Call(host.address());
  std::vector<std::byte> hello = SomeHello();
  hello[8] = std::byte{9};
  hello.resize(40);
  caller->Say(hello);
  const std::vector<std::byte> heard = caller->Hear(kDoorChallengeBytes + kDoorVerdictBytes);
  REQUIRE(heard.size() == kDoorChallengeBytes + kDoorVerdictBytes);
  CHECK(VersionOf(std::span(heard).first<kDoorPrefixBytes>()) == kDoorVersion);
  CHECK(LoadVerdict(std::span(heard).subspan<kDoorChallengeBytes, 4>()) == DoorVerdict::kVersion);
}

TEST_CASE("Door: a purpose that nobody serves, or that does not exist, is an unknown subject") {
  DoorHost host("node-b", kFew);
  for (const std::uint16_t purpose : {0, 2, 4, 65535}) {
    INFO(purpose);
    const auto caller = Call(host.address());
    std::vector<std::byte> hello = SomeHello();
    hello[10] = static_cast<std::byte>(purpose & 0xff);
    hello[11] = static_cast<std::byte>(purpose >> 8);
    caller->Say(hello);
    CHECK(caller->Hear(kDoorChallengeBytes).size() == kDoorChallengeBytes);
    caller->Say(std::vector<std::byte>(kDoorProofBytes));
    const std::vector<std::byte> verdict = caller->Hear(kDoorVerdictBytes);
    REQUIRE(verdict.size() == kDoorVerdictBytes);
    CHECK(LoadVerdict(std::span(verdict).first<4>()) == DoorVerdict::kUnknownSubject);
  }
}

TEST_CASE("Door: of more strangers than there are places the first lose theirs") {
  DoorHost host("node-b", kFew);
  std::vector<std::unique_ptr<Caller>> callers;
  for (int i = 0; i < 20; ++i) callers.push_back(Call(host.address()));
  CHECK(Within([&] { return CountHungUpOn(callers) == 12; }));
  for (std::size_t i = 0; i < callers.size(); ++i) CHECK(callers[i]->IsHungUpOn() == (i < 12));
}

TEST_CASE("Door: a flood from one address does not push out who comes from another") {
  DoorHost host("node-b", kFew);
  host.reception().Expect("secret");
  const auto other = Call(host.address(), "127.0.0.2");
  std::vector<std::unique_ptr<Caller>> flood;
  for (int i = 0; i < 100; ++i) flood.push_back(Call(host.address()));
  CHECK(Within([&] { return CountHungUpOn(flood) == 100 - kFew.most + 1; }));
  CHECK_FALSE(other->IsHungUpOn());
  CHECK(other->Enter("secret") == DoorState::kWelcome);
  // Nor who comes into the middle of it.
  CHECK(Call(host.address(), "127.0.0.3")->Enter("secret") == DoorState::kWelcome);
}

TEST_CASE("Door: of very many addresses each has one place, and the latest have them") {
  DoorHost host("node-b", kFew);
  std::vector<std::unique_ptr<Caller>> callers;
  for (int i = 0; i < 10; ++i) callers.push_back(Call(host.address(), "127.0.0.1"));
  for (int i = 1; i <= 30; ++i) {
    callers.push_back(Call(host.address(), "127.0.1." + std::to_string(i)));
  }
  CHECK(Within([&] { return CountHungUpOn(callers) == callers.size() - kFew.most; }));
  for (std::size_t i = 0; i < callers.size(); ++i) {
    CHECK(callers[i]->IsHungUpOn() == (i < callers.size() - kFew.most));
  }
}

TEST_CASE("Door: dialled in the middle of a flood from the dialler's own address, it is found") {
  DoorHost host("node-b", kFew);
  host.reception().Expect("secret");
  DoorHost here("node-a");
  std::vector<std::unique_ptr<Caller>> flood;
  for (int i = 0; i < 300; ++i) {
    flood.push_back(Call(host.address()));
    if (i != 100) continue;
    DialOutcome dial(here.door(), host.address(), "secret");
    for (int j = 0; j < 50; ++j) flood.push_back(Call(host.address()));
    CHECK(dial.Await().ok());
  }
}

TEST_CASE("Door: without descriptors who comes is turned away at once, and served when there are") {
  DoorHost host("node-b", kFew);
  host.reception().Expect("secret");
  Caller turned_away(host.address());
  Caller later(host.address());
  {
    const NoDescriptors none;
    REQUIRE(turned_away.Connect());
    CHECK(turned_away.HungUpOn());
  }
  REQUIRE(later.Connect());
  CHECK(later.Enter("secret") == DoorState::kWelcome);
}

TEST_CASE("Door: who has gone before it is welcomed is not handed over") {
  DoorHost host("node-b", kFew);
  host.reception().Expect("secret");
  auto gone = Call(host.address());
  DoorDialler dialler(KeyOf("secret"), {DoorPurpose::kControl, SubjectOfJob(), 0, "node-gone"});
  gone->Say(dialler.outgoing());
  dialler.Sent(dialler.outgoing().size());
  const std::vector<std::byte> challenge = gone->Hear(kDoorChallengeBytes);
  REQUIRE(challenge.size() == kDoorChallengeBytes);
  std::copy(challenge.begin(), challenge.end(), dialler.room().begin());
  dialler.Received(challenge.size());
  {
    MutexLock gate(host.reception().gate());
    gone->Say(dialler.outgoing());
    gone.reset();
  }
  CHECK(Within([&] { return host.reception().considered() == 1; }));
  const auto other = Call(host.address());
  CHECK(other->Enter("secret") == DoorState::kWelcome);
  const std::optional<DoorArrival> arrival = host.reception().Await();
  REQUIRE(arrival.has_value());
  CHECK_THAT(arrival->from, Catch::StartsWith("node-a at "));
}

TEST_CASE("Door: who has proved itself takes no stranger's place and no more of its time") {
  DoorHost host("node-b", {.most = 2, .patience = std::chrono::milliseconds(300)});
  host.reception().Expect("secret");
  std::vector<std::unique_ptr<Caller>> members;
  std::vector<std::optional<DoorArrival>> arrivals;
  for (int i = 0; i < 5; ++i) {
    members.push_back(Call(host.address()));
    REQUIRE(members.back()->Enter("secret") == DoorState::kWelcome);
    arrivals.push_back(host.reception().Await());
  }
  CHECK(Call(host.address())->HungUpOn());  // when a stranger's time is over
  CHECK(CountHungUpOn(members) == 0);
}

}  // namespace ringd
