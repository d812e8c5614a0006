// One dial, and who answers it, in turns.
#include "daemon/door/dial.h"

#include <poll.h>

#include <catch2/catch.hpp>

#include "daemon/door/door_socket.h"
#include "daemon/door/stranger.h"
#include "tests/daemon/door/door_fixture.h"

namespace ringd {
namespace {

bool Await(int socket, short events) {
  pollfd ready{socket, events, 0};
  return ::poll(&ready, 1, 20'000) == 1;
}

}  // namespace

TEST_CASE("Dial: an answer that came while its thread did not run counts, late as it is") {
  const absl::StatusOr<ListeningSocket> listening = ListenForDoor("127.0.0.1:0");
  REQUIRE(listening.ok());
  DialRequest request;
  request.purpose = DoorPurpose::kControl;
  request.subject = SubjectOfJob();
  request.key = KeyOf("secret");
  request.addresses = {listening->address};
  const Clock::time_point begun = Clock::now();
  request.deadline = begun + std::chrono::hours(1);
  Dial dial(std::move(request));
  REQUIRE(dial.Begin(begun, "node-a", {}) == Dial::Progress::kConnecting);
  REQUIRE(Await(listening->fd.get(), POLLIN));
  int error = 0;
  Stranger there(AcceptOne(listening->fd.get(), {}, error), DoorAnswerer(0, "node-b"),
                 begun + std::chrono::hours(1));

  REQUIRE(Await(dial.socket(), POLLOUT));
  REQUIRE(dial.Advance(begun) == Dial::Progress::kConnecting);
  REQUIRE(Await(there.socket(), POLLIN));
  REQUIRE(there.Advance() == Stranger::Progress::kWaiting);
  REQUIRE(Await(dial.socket(), POLLIN));
  REQUIRE(dial.Advance(begun) == Dial::Progress::kConnecting);
  REQUIRE(Await(there.socket(), POLLIN));
  REQUIRE(there.Advance() == Stranger::Progress::kAsked);
  there.Decide({KeyOf("secret")}, DoorVerdict::kWrongKey);
  REQUIRE(there.Advance() == Stranger::Progress::kProven);
  REQUIRE(Await(dial.socket(), POLLIN));

  REQUIRE(dial.TimeOut(begun + 2 * Dial::kPatience) == Dial::Progress::kEnded);
  const absl::StatusOr<DoorConnection> outcome = dial.TakeOutcome();
  INFO(outcome.status());
  REQUIRE(outcome.ok());
  CHECK(AreConnected(outcome->socket.get(), there.socket()));
}

}  // namespace ringd
