#include "daemon/supervisor/engine_connections.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "proto/base/clock.h"
#include "proto/base/unix_socket.h"
#include "tests/count_descriptors.h"
#include "tests/proto/base/tcp_pair.h"

namespace ringd {
namespace {

// An engine's member, and what closes its sockets.
struct Members {
  std::unique_ptr<EngineConnections> Of(const std::shared_ptr<UserPlaces>& user) {
    return std::make_unique<EngineConnections>(
        [](const v1::EngineNetworkEvent&, const auto&, const auto&) {}, user, &isolated);
  }
  // Waits until what was discarded has been closed.
  std::size_t Descriptors() const {
    for (int i = 0; i < 3000 && isolated.backlog() > 0; ++i) ::poll(nullptr, 0, 10);
    return CountDescriptors();
  }

  IsolatedExecutor isolated;
};

// True: what was said last comes within half a minute, or in any case.
bool Hears(const UniqueFd& far) {
  pollfd entry{far.get(), POLLIN, 0};
  char byte = 0;
  return ::poll(&entry, 1, 30'000) == 1 && ::recv(far.get(), &byte, 1, MSG_DONTWAIT) == 1;
}

TEST_CASE("EngineConnections: all engines of a user keep so many control connections together") {
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  Members all;
  const auto user = std::make_shared<UserPlaces>();
  const auto other = all.Of(std::make_shared<UserPlaces>());
  const auto ends = UnixSocketPair();
  REQUIRE(ends.ok());
  const std::size_t before = all.Descriptors();
  std::vector<std::unique_ptr<EngineConnections>> members;
  for (int i = 0; i < 4; ++i) {
    members.push_back(all.Of(user));
    for (int connection = 0; connection < 400; ++connection) {
      members.back()->KeepControl(ends->first);
    }
  }
  CHECK(all.Descriptors() == before + UserPlaces::kMostControls);
  other->KeepControl(ends->first);
  CHECK(all.Descriptors() == before + UserPlaces::kMostControls + 1);
  // Their places are free when an engine has gone.
  members.pop_back();
  members.erase(members.begin());
  CHECK(all.Descriptors() < before + UserPlaces::kMostControls);
  const std::size_t left = all.Descriptors();
  members.back()->KeepControl(ends->first);
  CHECK(all.Descriptors() == left + 1);
}

TEST_CASE("EngineConnections: connections whose other end has gone are kept no longer") {
  Members all;
  const auto member = all.Of(std::make_shared<UserPlaces>());
  auto gone = testing::TcpPair();
  const auto there = testing::TcpPair();
  const std::size_t before = all.Descriptors();
  member->KeepControl(gone[0]);
  gone[1].Reset();
  pollfd entry{gone[0].get(), POLLRDHUP, 0};
  REQUIRE(::poll(&entry, 1, 30'000) == 1);
  member->KeepControl(there[0]);
  // One is kept, and the other end of the first one has gone.
  CHECK(all.Descriptors() == before);
  member->SayLast(absl::AbortedError("over"));
  CHECK(Hears(there[1]));
}

TEST_CASE("EngineConnections: of a user's engines the one that has too many loses its oldest") {
  Members all;
  const auto user = std::make_shared<UserPlaces>();
  std::vector<CountedPlaces::Place> taken;
  while (taken.size() + 1 < UserPlaces::kMostControls) taken.push_back(user->controls.Take());
  const auto member = all.Of(user);
  const auto first = UnixSocketPair();
  const auto second = UnixSocketPair();
  REQUIRE((first.ok() && second.ok()));
  member->KeepControl(first->first);
  member->KeepControl(second->first);
  member->SayLast(absl::AbortedError("over"));
  CHECK(Hears(second->second));
  char byte = 0;
  CHECK(::recv(first->second.get(), &byte, 1, MSG_DONTWAIT) < 0);
}

TEST_CASE("EngineConnections: a user who holds up as many obituaries as he may hears no more") {
  Members all;
  const auto user = std::make_shared<UserPlaces>();
  std::vector<CountedPlaces::Place> said;
  while (said.size() < UserPlaces::kMostObituaries) said.push_back(user->obituaries.Take());
  const auto pair = UnixSocketPair();
  REQUIRE(pair.ok());
  const auto member = all.Of(user);
  member->KeepControl(pair->first);
  member->SayLast(absl::AbortedError("over"));
  all.isolated.Stop();  // what was handed over has been done
  char byte = 0;
  CHECK(::recv(pair->second.get(), &byte, 1, MSG_DONTWAIT) < 0);
}

TEST_CASE("EngineConnections: what a user holds up counts also when all his engines have gone") {
  Members all;
  auto user = std::make_shared<UserPlaces>();
  const std::weak_ptr<UserPlaces> kept = user;
  auto lingering = testing::TcpPair();
  testing::MakeLinger(lingering[0].get());
  auto member = all.Of(user);
  member->KeepControl(lingering[0]);
  lingering[0].Reset();
  member->SayLast(absl::AbortedError("over"));
  // Its close waits.
  member.reset();
  user.reset();
  CHECK_FALSE(kept.expired());
}

TEST_CASE("EngineConnections: a control connection whose close waits keeps nobody") {
  Members all;
  const auto member = all.Of(std::make_shared<UserPlaces>());
  auto lingering = testing::TcpPair();
  testing::MakeLinger(lingering[0].get());
  const auto other = UnixSocketPair();
  REQUIRE(other.ok());
  const auto began = Clock::now();
  member->KeepControl(lingering[0]);
  member->KeepControl(other->first);
  lingering[0].Reset();
  member->SayLast(absl::AbortedError("over"));
  CHECK(Hears(other->second));
  CHECK(Clock::now() - began < std::chrono::seconds(testing::kLingerSeconds) / 2);
}

}  // namespace
}  // namespace ringd
