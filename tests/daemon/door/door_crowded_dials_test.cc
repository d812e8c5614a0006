// Dials of one user, and what they cost others.
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/door/door.h"
#include "tests/daemon/door/door_fixture.h"

namespace ringd {
namespace {

using Catch::Contains;
using std::chrono::seconds;

// A door that never answers: whoever connects waits.
struct SilentDoor {
  std::unique_ptr<Door> door = OpenDoor({"127.0.0.1:0", "silent"});
};

std::vector<std::unique_ptr<DialOutcome>> DialMany(Door& door, const std::string& address,
                                                   int count, Clock::duration patience,
                                                   uid_t user) {
  std::vector<std::unique_ptr<DialOutcome>> dials;
  for (int i = 0; i < count; ++i) {
    dials.push_back(std::make_unique<DialOutcome>(door, address, "secret", patience, 0, 7, user));
  }
  return dials;
}

TEST_CASE("Door: a user whose dials nobody answers keeps no other user's waiting") {
  const SilentDoor silent;
  DoorHost here("node-a");
  DoorHost there("node-b");
  there.reception().Expect("secret");
  const auto crowd = DialMany(here.door(), silent.door->address(), 1000, seconds(30), 1001);
  // Far less than all of theirs take, one after the other.
  DialOutcome dial(here.door(), there.address(), "secret", seconds(15), 0, 1, 1002);
  const absl::StatusOr<DoorConnection> outcome = dial.Await();
  INFO(outcome.status());
  CHECK(outcome.ok());
}

TEST_CASE("Door: a dial whose turn never came says so, and not that nobody can be reached") {
  const SilentDoor silent;
  DoorHost here("node-a");
  const auto crowd = DialMany(here.door(), silent.door->address(), 300, seconds(1), 1001);
  const auto text = std::string(crowd.back()->Await().status().message());
  CHECK_THAT(text, Contains("no connection to ringd on node-b at 127.0.0.1:"));
  CHECK_THAT(text, Contains("it waited for its turn"));
  CHECK_THAT(std::string(crowd.front()->Await().status().message()),
             Contains("it does not answer"));
}

TEST_CASE("Door: groups that end without end cost nothing, however many dials others have") {
  const SilentDoor silent;
  DoorHost here("node-a");
  DoorHost there("node-b");
  there.reception().Expect("secret");
  const auto crowd = DialMany(here.door(), silent.door->address(), 4000, seconds(60), 1001);
  for (std::uint64_t group = 1000; group < 201'000; ++group) here.door().Abandon(group);
  DialOutcome dial(here.door(), there.address(), "secret", seconds(20), 0, 1, 1002);
  const absl::StatusOr<DoorConnection> outcome = dial.Await();
  INFO(outcome.status());
  CHECK(outcome.ok());
}

TEST_CASE("Door: abandoned dials make room for those that wait") {
  const SilentDoor silent;
  DoorHost here("node-a");
  DoorHost there("node-b");
  there.reception().Expect("secret");
  const auto crowd = DialMany(here.door(), silent.door->address(), 200, seconds(30), 1001);
  DialOutcome dial(here.door(), there.address(), "secret", seconds(20), 0, 1, 1001);
  here.door().Abandon(7);
  const Clock::time_point began = Clock::now();
  CHECK(dial.Await().ok());
  CHECK(Clock::now() - began < seconds(15));
}

}  // namespace
}  // namespace ringd
