#include "client/core/attach/session_state.h"

#include <catch2/catch.hpp>
#include <string>
#include <thread>

namespace ringd::client {
namespace {

TEST_CASE("SessionState: the first cause wins") {
  SessionState state;
  CHECK(state.alive());
  CHECK(state.status().ok());
  CHECK_FALSE(state.GivenUp());
  state.Lose(absl::UnavailableError("first"));
  state.Lose(absl::InternalError("second"));
  state.Fail("third");
  CHECK(state.status() == absl::UnavailableError("first"));
  CHECK(state.GivenUp());
}

TEST_CASE("SessionState: a failure's cause stays when ringd goes, and waits its grace") {
  SessionState state;
  state.Fail("rank 3 was killed");
  CHECK_FALSE(state.alive());
  CHECK_FALSE(state.GivenUp());
  CHECK(state.status() == absl::AbortedError("rank 3 was killed"));
  state.Lose(absl::UnavailableError("ringd has gone"));
  CHECK(state.GivenUp());
  CHECK(state.status() == absl::AbortedError("rank 3 was killed"));
}

TEST_CASE("SessionState: after the grace a failure gives up by itself") {
  SessionState state;
  state.Fail("rank 3 was killed");
  std::this_thread::sleep_for(SessionState::kFailureGrace + std::chrono::milliseconds(50));
  CHECK(state.GivenUp());
}

TEST_CASE("SessionState: closing cancels, but for those who wait for what was lost") {
  SessionState failed;
  failed.Fail("rank 3 was killed");
  failed.Close();
  CHECK(absl::IsCancelled(failed.status()));
  CHECK(failed.GivenUp());
  SessionState lost;
  lost.Lose(absl::UnavailableError("gone"));
  lost.Close();
  CHECK(lost.status() == absl::UnavailableError("gone"));
  CHECK(lost.GivenUp());
}

}  // namespace
}  // namespace ringd::client
