// Two doors, and what becomes of a dial.
#include "daemon/door/door.h"

#include <catch2/catch.hpp>
#include <string>

#include "tests/daemon/door/door_fixture.h"

namespace ringd {
namespace {

using Catch::Contains;

std::string TextOf(const absl::StatusOr<DoorConnection>& outcome) {
  return std::string(outcome.status().message());
}

// Answers one connection with these bytes, and tells what it heard.
class WrongAnswerer {
 public:
  explicit WrongAnswerer(std::vector<std::byte> answer) {
    absl::StatusOr<ListeningSocket> listening = ListenForDoor("127.0.0.1:0");
    REQUIRE(listening.ok());
    address_ = listening->address;
    thread_ = std::thread([fd = std::move(listening->fd), answer = std::move(answer)] {
      pollfd readable{fd.get(), POLLIN, 0};
      if (::poll(&readable, 1, 20'000) != 1) return;
      int error = 0;
      const AcceptedSocket accepted = AcceptOne(fd.get(), {}, error);
      static_cast<void>(!::send(accepted.fd.get(), answer.data(), answer.size(), MSG_NOSIGNAL));
      // Until the dialler has hung up.
      pollfd hung_up{accepted.fd.get(), POLLRDHUP, 0};
      ::poll(&hung_up, 1, 20'000);
    });
  }
  ~WrongAnswerer() { thread_.join(); }
  const std::string& address() const { return address_; }

 private:
  std::string address_;
  std::thread thread_;
};

std::vector<std::byte> BytesOf(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// An address on which nobody listens.
std::string DeadAddress() { return OpenDoor({"127.0.0.1:0", "nobody"})->address(); }

}  // namespace

TEST_CASE("Door: two that have the key get the two ends of one connection and one session key") {
  DoorHost here("node-a");
  DoorHost there("node-b");
  there.reception().Expect("secret");
  DialOutcome dial(here.door(), there.address(), "secret");
  std::optional<DoorArrival> arrival = there.reception().Await();
  absl::StatusOr<DoorConnection> outcome = dial.Await();
  INFO(outcome.status());
  REQUIRE(outcome.ok());
  REQUIRE(arrival.has_value());
  CHECK(outcome->session_key == arrival->session_key);
  CHECK(outcome->node_name == "node-b");
  CHECK_THAT(arrival->from, Contains("node-a at 127.0.0.1 port "));
  CHECK(arrival->hello.purpose == DoorPurpose::kControl);
  CHECK(AreConnected(outcome->socket.get(), arrival->socket.get()));
  CHECK(AreConnected(arrival->socket.get(), outcome->socket.get()));
  CHECK(dial.times() == 1);
}

TEST_CASE("Door: a dialler tries again until somebody waits for it") {
  DoorHost here("node-a");
  DoorHost there("node-b");
  DialOutcome dial(here.door(), there.address(), "secret");
  CHECK(Within([&] { return there.reception().considered() >= 3; }));
  CHECK(dial.times() == 0);
  there.reception().Refuse(DoorVerdict::kFull);
  const int before = there.reception().considered();
  CHECK(Within([&] { return there.reception().considered() > before; }));
  CHECK(dial.times() == 0);
  there.reception().Expect("secret");
  there.reception().Refuse(DoorVerdict::kWelcome);
  CHECK(dial.Await().ok());
  CHECK(there.reception().Await().has_value());
}

TEST_CASE("Door: who comes too early is let in as soon as somebody waits for it") {
  StrangerLimits limits;
  limits.early = kDoorDeadline;
  limits.patience = 2 * kDoorDeadline;
  DoorHost here("node-a");
  DoorHost there("node-b", limits);
  DialOutcome dial(here.door(), there.address(), "secret");
  REQUIRE(Within([&] { return there.reception().considered() > 0; }));
  CHECK(dial.times() == 0);
  there.reception().Expect("secret");
  there.door().Reconsider();
  CHECK(dial.Await().ok());
  CHECK(there.reception().considered() == 2);
}

TEST_CASE("Door: who comes too early and goes again leaves nothing behind") {
  DoorHost there("node-b");
  const std::size_t before = CountDescriptors();
  {
    const auto early = Call(there.address());
    DoorDialler dialler(KeyOf("secret"), {DoorPurpose::kControl, SubjectOfJob(), 0, "node-a"});
    early->Say(dialler.outgoing());
    dialler.Sent(dialler.outgoing().size());
    const std::vector<std::byte> heard = early->Hear(kDoorChallengeBytes);
    std::copy(heard.begin(), heard.end(), dialler.room().begin());
    dialler.Received(heard.size());
    early->Say(dialler.outgoing());
    REQUIRE(Within([&] { return there.reception().considered() > 0; }));
  }
  CHECK(Within([&] { return CountDescriptors() == before; }));
}

TEST_CASE("Door: a dialler that is led to its own door hears that") {
  DoorHost here("node-a");
  here.reception().Expect("secret");
  const auto outcome = DialOutcome(here.door(), here.address(), "secret").Await();
  CHECK(outcome.status().code() == absl::StatusCode::kAlreadyExists);
  CHECK(here.reception().empty());
}

TEST_CASE("Door: of several addresses each is tried in turn") {
  DoorHost here("node-a");
  DoorHost there("node-b");
  there.reception().Expect("secret");
  DialOutcome dial(here.door(), {DeadAddress(), there.address()}, "secret");
  CHECK(dial.Await().ok());
}

TEST_CASE("Door: listens on another address with the same port, and once on each") {
  DoorHost here("node-a");
  DoorHost there("node-b");
  there.reception().Expect("secret");
  const std::string port = there.address().substr(there.address().rfind(':'));
  REQUIRE(there.door().AlsoListenOn("127.0.0.2").ok());
  REQUIRE(there.door().AlsoListenOn("127.0.0.2").ok());
  REQUIRE(there.door().AlsoListenOn("127.0.0.1").ok());
  CHECK_FALSE(there.door().AlsoListenOn("192.0.2.1").ok());  // no address of this machine
  CHECK(DialOutcome(here.door(), "127.0.0.2" + port, "secret").Await().ok());
  CHECK(DialOutcome(here.door(), there.address(), "secret").Await().ok());
}

TEST_CASE("Door: a dialler tries again until somebody listens") {
  DoorHost here("node-a");
  const std::string address = DeadAddress();
  DialOutcome dial(here.door(), address, "secret");
  // Another one that is given up shows that attempts were made and refused.
  CHECK_FALSE(
      DialOutcome(here.door(), address, "secret", std::chrono::milliseconds(100)).Await().ok());
  CHECK(dial.times() == 0);
  DoorHost there("node-b", {}, address);
  there.reception().Expect("secret");
  CHECK(dial.Await().ok());
}

TEST_CASE("Door: a dialler gives up at its deadline and names node, address and the last cause") {
  DoorHost here("node-a");
  DoorHost there("node-b");
  const std::string dead = DeadAddress();
  const auto patience = std::chrono::milliseconds(200);
  SECTION("nobody listens") {
    const auto outcome = DialOutcome(here.door(), dead, "secret", patience).Await();
    CHECK(outcome.status().code() == absl::StatusCode::kDeadlineExceeded);
    CHECK_THAT(TextOf(outcome), Contains("ringd on node-b at " + dead) && Contains("refused") &&
                                    Contains("MASTER_ADDR"));
  }
  SECTION("nobody waits") {
    const auto outcome = DialOutcome(here.door(), there.address(), "secret", patience).Await();
    CHECK(outcome.status().code() == absl::StatusCode::kDeadlineExceeded);
    CHECK_THAT(TextOf(outcome), Contains("no rank of the job has joined there"));
  }
  SECTION("nobody answers") {
    absl::StatusOr<ListeningSocket> silent = ListenForDoor("127.0.0.1:0");
    REQUIRE(silent.ok());
    const auto outcome = DialOutcome(here.door(), silent->address, "secret", patience).Await();
    CHECK(outcome.status().code() == absl::StatusCode::kDeadlineExceeded);
    CHECK_THAT(TextOf(outcome), Contains("it does not answer"));
  }
}

TEST_CASE("Door: a wrong key is told at once, and which side lacks one") {
  const std::uint32_t here_flags = GENERATE(0u, kDoorHasClusterKey);
  const std::uint32_t there_flags = GENERATE(0u, kDoorHasClusterKey);
  DoorHost here("node-a", {}, "127.0.0.1:0", here_flags);
  DoorHost there("node-b", {}, "127.0.0.1:0", there_flags);
  there.reception().Expect("right");
  const auto outcome =
      DialOutcome(here.door(), there.address(), "wrong", kDoorDeadline, here_flags).Await();
  CHECK(outcome.status().code() == absl::StatusCode::kUnauthenticated);
  CHECK_THAT(TextOf(outcome), Contains("node-b at " + there.address()));
  if (here_flags == there_flags) {
    CHECK_THAT(TextOf(outcome),
               Contains(here_flags != 0 ? "another cluster key" : "ranks on node-a differs"));
  } else {
    CHECK_THAT(TextOf(outcome),
               Contains(here_flags != 0 ? "the ringd on node-b has none"
                                        : "the ringd on node-a has no cluster key"));
  }
  CHECK(there.reception().considered() == 1);
  CHECK(there.reception().refused() == std::vector{DoorVerdict::kWrongKey});
  CHECK(there.reception().empty());
}

TEST_CASE("Door: who answers but is no ringd, or one of another version, is not tried again") {
  DoorHost here("node-a");
  SECTION("another protocol") {
    WrongAnswerer other(BytesOf("HTTP/1.1 400 Bad Request\r\n\r\n"));
    const auto outcome = DialOutcome(here.door(), other.address(), "secret").Await();
    CHECK(outcome.status().code() == absl::StatusCode::kUnauthenticated);
    CHECK_THAT(TextOf(outcome), Contains("it does not speak as a ringd"));
  }
  SECTION("another version") {
    DoorChallenge challenge;
    challenge.version = kDoorVersion + 1;
    const DoorChallengeBytes bytes = Encode(challenge);
    WrongAnswerer other({bytes.begin(), bytes.end()});
    const auto outcome = DialOutcome(here.door(), other.address(), "secret").Await();
    CHECK(outcome.status().code() == absl::StatusCode::kFailedPrecondition);
    CHECK_THAT(TextOf(outcome),
               Contains("node-b") && Contains("speaks door version 4, this one 3"));
  }
  SECTION("an impostor, who says welcome to everybody") {
    std::vector<std::byte> bytes(kDoorChallengeBytes + kDoorVerdictBytes);
    const DoorChallengeBytes challenge = Encode(DoorChallenge{});
    std::copy(challenge.begin(), challenge.end(), bytes.begin());
    WrongAnswerer other(bytes);
    const auto outcome = DialOutcome(here.door(), other.address(), "secret").Await();
    CHECK(outcome.status().code() == absl::StatusCode::kUnauthenticated);
    CHECK_THAT(TextOf(outcome), Contains("it let us in without the key"));
  }
}

TEST_CASE("Door: an address without a numeric host and a port is refused, and names the node") {
  DoorHost here("node-a");
  for (const char* address : {"localhost:7117", "127.0.0.1:0", "nonsense", "", "127.0.0.1:99999"}) {
    INFO(address);
    const auto outcome = DialOutcome(here.door(), address, "secret").Await();
    CHECK(outcome.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(TextOf(outcome), Contains("node-b"));
  }
}

TEST_CASE("Door: an abandoned dial is not heard of any more, others are") {
  DoorHost here("node-a");
  DoorHost there("node-b");
  DialOutcome abandoned(here.door(), there.address(), "secret", kDoorDeadline, 0, 1);
  DialOutcome other(here.door(), there.address(), "secret", kDoorDeadline, 0, 2);
  CHECK(Within([&] { return there.reception().considered() >= 2; }));
  here.door().Abandon(1);
  // Orders are followed in their order: this one ends behind it.
  CHECK_FALSE(DialOutcome(here.door(), "nonsense", "secret", kDoorDeadline, 0, 3).Await().ok());
  there.reception().Expect("secret");
  CHECK(other.Await().ok());
  CHECK(there.reception().Await().has_value());
  CHECK(abandoned.times() == 0);
  CHECK(there.reception().empty());
}

TEST_CASE("Door: more dials than may have a socket at once all end") {
  DoorHost here("node-a");
  DoorHost there("node-b", {.most = 1024});
  there.reception().Expect("secret");
  std::vector<DialOutcome> dials;
  constexpr int kCount = static_cast<int>(Dials::kMostSockets) + 100;
  for (int i = 0; i < kCount; ++i) dials.emplace_back(here.door(), there.address(), "secret");
  for (DialOutcome& dial : dials) CHECK(dial.Await().ok());
}

TEST_CASE("Door: it serves IPv6, and tells where") {
  absl::StatusOr<std::unique_ptr<Door>> opened = Door::Open({"[::1]:0", "node-b"});
  if (!opened.ok()) return;  // a machine without IPv6
  CHECK_THAT((*opened)->address(), Catch::StartsWith("[::1]:"));
  const auto reception = std::make_shared<TestReception>();
  reception->Expect("secret");
  (*opened)->SetReception(DoorPurpose::kControl, reception);
  (*opened)->Start();
  DoorHost here("node-a");
  CHECK(DialOutcome(here.door(), (*opened)->address(), "secret").Await().ok());
  CHECK(reception->Await().has_value());
  (*opened)->Stop();
}

TEST_CASE("Door: an address that is taken, or none, can't be listened on, and the text names it") {
  DoorHost host("node-a");
  const auto taken = Door::Open({host.address(), "node-b"});
  CHECK_FALSE(taken.ok());
  CHECK_THAT(std::string(taken.status().message()), Contains(host.address()));
  CHECK(Door::Open({"nonsense", "node-b"}).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE(
    "Door: when it is stopped, all its descriptors are closed and nothing is heard of dials") {
  const std::size_t before = CountDescriptors();
  {
    DoorHost there("node-b");
    auto here = std::make_unique<DoorHost>("node-a");
    there.reception().Expect("secret");
    const auto outcome = DialOutcome(here->door(), there.address(), "secret").Await();
    CHECK(outcome.ok());
    CHECK(there.reception().Await().has_value());
    there.reception().Refuse(DoorVerdict::kUnknownSubject);
    DialOutcome under_way(here->door(), there.address(), "secret");
    const auto silent = Call(here->address());
    CHECK(Within([&] { return there.reception().considered() >= 2; }));
    here.reset();
    CHECK(silent->HungUpOn());
    CHECK(under_way.times() == 0);
  }
  CHECK(CountDescriptors() == before);
}

}  // namespace ringd
