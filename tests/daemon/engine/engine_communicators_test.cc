// How many communicators ringd makes for whom.
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "proto/base/clock.h"
#include "tests/daemon/engine/called_engine.h"

namespace ringd {
namespace {

// Each is one descriptor in this process.
void RaiseDescriptorLimit() {
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = limit.rlim_max;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
  REQUIRE(limit.rlim_cur >= 4096);
}

Awaited<v1::CreateCommunicatorReply> Create(Node& node, const Trainer& trainer, int number) {
  v1::CreateCommunicatorRequest request;
  request.set_name("c" + std::to_string(number));
  request.add_ranks(0);
  auto made = Await<v1::CreateCommunicatorReply>([&](Answer<v1::CreateCommunicatorReply> answer) {
    node.engine->CreateCommunicator({}, trainer.token, request, std::move(answer));
  });
  // What the trainer is sent, without taking the descriptors: a session that lets notices pile up
  // is another test's.
  std::array<std::byte, 4096> notices;
  while (::recv(trainer.lifeline.get(), notices.data(), notices.size(), MSG_DONTWAIT) > 0) {
  }
  return made;
}

absl::Status Destroy(Node& node, const Trainer& trainer, std::uint32_t communicator) {
  v1::DestroyCommunicatorRequest request;
  request.set_communicator(communicator);
  return Await<v1::DestroyCommunicatorReply>([&](Answer<v1::DestroyCommunicatorReply> answer) {
           node.engine->DestroyCommunicator({}, trainer.token, request, std::move(answer));
         })
      .status;
}

// Until there is room.
absl::Status CreateInTime(Node& node, const Trainer& trainer) {
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(20);
  for (;;) {
    absl::Status made = Create(node, trainer, 1).status;
    if (made.ok() || Clock::now() > deadline) return made;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace

TEST_CASE("Engine: a user has at most 1,024 communicators on a node, in all jobs together") {
  constexpr int kOfOneJob = 512;
  RaiseDescriptorLimit();
  Node node;
  const std::vector<Trainer> full = [&] {
    std::vector<Trainer> trainers;
    for (int job = 0; job < 2; ++job) trainers.push_back(node.Join(1000));
    return trainers;
  }();
  const Trainer third = node.Join(1000);
  const Trainer other_user = node.Join(2000);
  std::uint32_t last = 0;
  for (const Trainer& trainer : full) {
    for (int number = 0; number < kOfOneJob; ++number) {
      const auto made = Create(node, trainer, number);
      REQUIRE(made.status.message() == "");
      last = made.reply.communicator();
    }
  }
  const absl::Status refused = Create(node, third, 0).status;
  CHECK(absl::IsResourceExhausted(refused));
  CHECK_THAT(std::string(refused.message()),
             Catch::Contains("uid 1000 have 1024 communicators on node-a"));
  CHECK(Create(node, other_user, 0).status.message() == "");

  // There is room again when one has ended, soon after it was destroyed.
  REQUIRE(Destroy(node, full.back(), last).message() == "");
  CHECK(CreateInTime(node, third).message() == "");
}

TEST_CASE("Engine: those that a user has in other engines count, and end with them") {
  RaiseDescriptorLimit();
  const auto account = std::make_unique<UserAccountSegment>();
  Node one(1 << 20, account.get(), 3);
  Node other(1 << 20, account.get(), 4);
  const Trainer here = one.Join();
  const Trainer there = other.Join();
  // As a third one would.
  account->slots[9].communicators.store(1022);
  const auto made = Create(one, here, 0);
  REQUIRE(made.status.message() == "");
  REQUIRE(Create(other, there, 0).status.message() == "");
  const absl::Status refused = Create(one, here, 1).status;
  CHECK(absl::IsResourceExhausted(refused));
  CHECK_THAT(std::string(refused.message()), Catch::Contains("uid 1000 have 1024 communicators"));
  CHECK(absl::IsResourceExhausted(Create(other, there, 1).status));

  SECTION("one is destroyed") {
    REQUIRE(Destroy(one, here, made.reply.communicator()).message() == "");
  }
  SECTION("an engine has gone") { account->slots[9].communicators.store(0); }
  CHECK(CreateInTime(other, there).message() == "");
}

namespace {

std::vector<v1::Communicator> List(Node& node) {
  const auto listed = Await<v1::CommunicatorsReply>([&](Answer<v1::CommunicatorsReply> answer) {
    node.engine->ListCommunicators({1000}, {}, std::move(answer));
  });
  return {listed.reply.communicators().begin(), listed.reply.communicators().end()};
}

}  // namespace

TEST_CASE("Engine: its first communicator and generation are given, and the others follow") {
  Node node([](EngineOptions& options) {
    options.first_communicator = 7;
    options.first_generation = 3;
  });
  Trainer first = node.Join();
  const Trainer second = node.Join();
  CHECK(first.communicator == 7);
  CHECK(second.communicator == 70'001);
  CHECK(Create(node, first, 1).reply.communicator() == 70'002);
  CHECK(node.Join().communicator == 70'003);
  CHECK(List(node).at(0).generation() == 3);
  CHECK(List(node).at(2).generation() == 4);
  first.lifeline.Reset();
  // Three jobs have been coordinated here, from generation 3 on.
  CHECK(node.listener.Await("generation 6").size() >= 4);
}

TEST_CASE("Engine: no two communicators have one number, also where numbers begin anew") {
  // e with e * 10000 + 1 = e, modulo 2^32.
  std::uint32_t inverse = 1;  // of 9999: Newton's iteration doubles the bits that are right
  for (int i = 0; i < 5; ++i) inverse *= 2 - 9999 * inverse;
  const std::uint32_t e = 0 - inverse;
  REQUIRE(e * 10'000 + 1 == e);
  Node node([e](EngineOptions& options) { options.first_communicator = e; });
  const Trainer first = node.Join();
  const Trainer second = node.Join();
  CHECK(first.communicator == e);
  CHECK(second.communicator == e + 1);
}

TEST_CASE("Engine: lists have all jobs, whatever their communicators' numbers are") {
  constexpr std::uint32_t kLast = 0xFFFF'FFFF;
  Node node([](EngineOptions& options) { options.first_communicator = kLast; });
  const Trainer first = node.Join();
  const Trainer second = node.Join();
  const Trainer third = node.Join();
  const std::vector<v1::Communicator> listed = List(node);
  REQUIRE(listed.size() == 3);
  CHECK(listed[0].communicator() == kLast);
  CHECK(listed[1].communicator() == kLast - 9'998);
  CHECK(listed[2].communicator() == kLast - 9'997);
}

}  // namespace ringd
