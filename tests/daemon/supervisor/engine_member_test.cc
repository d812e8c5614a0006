#include "daemon/supervisor/engine_member.h"

#include <sys/resource.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "proto/base/unix_socket.h"
#include "tests/count_descriptors.h"

namespace ringd {
namespace {

std::unique_ptr<EngineMember> MemberOf(const std::shared_ptr<UserPlaces>& user) {
  return std::make_unique<EngineMember>([](const v1::EngineNetworkEvent&, const auto&) {}, user);
}

// True: what was said last has come.
bool HasEnded(const UniqueFd& far) {
  char byte = 0;
  return ::recv(far.get(), &byte, 1, MSG_DONTWAIT) == 1;
}

TEST_CASE("EngineMember: all engines of a user keep so many control connections together") {
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  const auto user = std::make_shared<UserPlaces>();
  const auto other = MemberOf(std::make_shared<UserPlaces>());
  const auto ends = UnixSocketPair();
  REQUIRE(ends.ok());
  const std::size_t before = CountDescriptors();
  std::vector<std::unique_ptr<EngineMember>> members;
  for (int i = 0; i < 4; ++i) {
    members.push_back(MemberOf(user));
    for (int connection = 0; connection < 400; ++connection) {
      members.back()->KeepControl(ends->first);
    }
  }
  CHECK(CountDescriptors() == before + UserPlaces::kMostControls);
  other->KeepControl(ends->first);
  CHECK(CountDescriptors() == before + UserPlaces::kMostControls + 1);
  // Their places are free when an engine has gone.
  members.pop_back();
  members.erase(members.begin());
  CHECK(CountDescriptors() < before + UserPlaces::kMostControls);
  const std::size_t left = CountDescriptors();
  members.back()->KeepControl(ends->first);
  CHECK(CountDescriptors() == left + 1);
}

TEST_CASE("EngineMember: of a user's engines the one that has too many loses its oldest") {
  const auto user = std::make_shared<UserPlaces>();
  std::vector<EnginePlaces::Place> taken;
  while (taken.size() + 1 < UserPlaces::kMostControls) taken.push_back(user->controls.Take());
  const auto member = MemberOf(user);
  const auto first = UnixSocketPair();
  const auto second = UnixSocketPair();
  REQUIRE((first.ok() && second.ok()));
  member->KeepControl(first->first);
  member->KeepControl(second->first);
  member->SayLast(absl::AbortedError("over"));
  CHECK_FALSE(HasEnded(first->second));
  CHECK(HasEnded(second->second));
}

}  // namespace
}  // namespace ringd
