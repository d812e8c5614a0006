// What calls cost the engine, counted in entries and not in time; and what users may hold.
#include <poll.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/daemon/engine/called_engine.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;

constexpr int kMany = 65'535;
// The engine counts a turn's entries after it, when the call may have been answered already.
constexpr std::uint64_t kOneTurn = 64;

v1::RegisterTensorsRequest Describe(const Trainer& trainer, int count, bool equal) {
  v1::RegisterTensorsRequest request;
  for (int i = 0; i < count; ++i) {
    v1::TensorDescription& tensor = *request.add_tensors();
    tensor.set_communicator(trainer.communicator);
    tensor.set_name("t" + std::to_string(equal ? 0 : i));
    tensor.add_shape(4);
  }
  return request;
}

TEST_CASE("Engine: 65,535 equal descriptions are one, and those that it knows cost nothing more") {
  Node node;
  const Trainer trainer = node.Join();
  const auto request = Describe(trainer, kMany, /*equal=*/true);
  for (int i = 0; i < 3; ++i) {
    const std::uint64_t before = node.engine->sliced_entries();
    const auto registered = node.Register(trainer, request);
    REQUIRE(registered.status.message() == "");
    CHECK(registered.reply.registrations_size() == kMany);
    for (const std::uint32_t number : registered.reply.registrations()) REQUIRE(number == 0);
    CHECK(node.engine->sliced_entries() - before <= 2 + kOneTurn);
  }
}

TEST_CASE("Engine: 65,535 different descriptions take many turns, each of them a few") {
  Node node;
  const Trainer trainer = node.Join();
  const auto request = Describe(trainer, kMany, /*equal=*/false);
  const auto registered = node.Register(trainer, request);
  REQUIRE(registered.status.message() == "");
  REQUIRE(registered.reply.registrations_size() == kMany);
  for (int i = 0; i < kMany; ++i) {
    REQUIRE(registered.reply.registrations(i) == static_cast<std::uint32_t>(i));
  }
  CHECK(node.engine->sliced_entries() >= kMany);
  CHECK(node.engine->most_sliced_entries() <= 70);
  const std::uint64_t before = node.engine->sliced_entries();
  const auto again = node.Register(trainer, request);
  CHECK(again.status.ok());
  CHECK(again.reply.SerializeAsString() == registered.reply.SerializeAsString());
  CHECK(node.engine->sliced_entries() - before <= 2 + kOneTurn);
}

TEST_CASE("Engine: one wrong description in a list, and none is registered") {
  Node node;
  const Trainer trainer = node.Join();
  auto request = Describe(trainer, 3, /*equal=*/false);
  request.mutable_tensors(2)->add_shape(-1);
  CHECK(node.Register(trainer, request).status.code() == absl::StatusCode::kInvalidArgument);
  auto good = Describe(trainer, 1, /*equal=*/false);
  good.mutable_tensors(0)->set_name("first");
  CHECK(node.Register(trainer, good).reply.registrations(0) == 0);
}

TEST_CASE("Engine: tensors before a join, or of nobody's session, are refused") {
  Node node;
  const Trainer trainer = node.Attach();
  CHECK(node.Register(trainer, {}).status.code() == absl::StatusCode::kFailedPrecondition);
  Trainer nobody;
  nobody.token = "nobody";
  CHECK(node.Register(nobody, {}).status.code() == absl::StatusCode::kUnauthenticated);
}

TEST_CASE(
    "Engine: a user's registrations are limited in bytes, over all sessions, until they end") {
  Node node(std::uint64_t{1} << 20);
  const Trainer first = node.Join(1000);
  const Trainer second = node.Join(1000);
  const Trainer other = node.Join(2000);
  REQUIRE(node.Register(first, Describe(first, 600, false)).status.ok());
  const auto refused = node.Register(second, Describe(second, 600, false));
  CHECK(refused.status.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(refused.status.message()), Contains("uid 1000") &&
                                                        Contains("registration_bytes_per_user") &&
                                                        Contains("1048576"));
  // Nothing of it stays, and what is there goes on.
  CHECK(node.Register(second, Describe(second, 100, false)).status.ok());
  CHECK(node.Register(first, Describe(first, 600, false)).status.ok());
  CHECK(node.Register(other, Describe(other, 600, false)).status.ok());
  ::shutdown(first.lifeline.get(), SHUT_RDWR);
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(30);
  absl::Status status;
  do {
    status = node.Register(second, Describe(second, 600, false)).status;
  } while (!status.ok() && Clock::now() < deadline);
  CHECK(status.message() == "");
}

TEST_CASE("Engine: one name described anew again and again holds what lives, in count and bytes") {
  // Room for a few hundred descriptions.
  Node node(std::uint64_t{256} << 10);
  const Trainer trainer = node.Join();
  const auto describe = [&](std::int64_t from, int count) {
    v1::RegisterTensorsRequest request;
    for (int i = 0; i < count; ++i) {
      v1::TensorDescription& tensor = *request.add_tensors();
      tensor.set_communicator(trainer.communicator);
      tensor.set_name("anew");
      tensor.add_shape(from + i);
    }
    return node.Register(trainer, request);
  };
  constexpr int kAtOnce = 200;
  for (std::int64_t from = 0; from < 70'000; from += kAtOnce) {
    const auto registered = describe(from, kAtOnce);
    REQUIRE(registered.status.message() == "");
    const auto& numbers = registered.reply.registrations();
    REQUIRE(node.Unregister(trainer, {numbers.begin(), numbers.end()}).message() == "");
  }
  // It knows none of them any more: an old one has a new number.
  const auto again = describe(0, 1);
  REQUIRE(again.status.message() == "");
  CHECK(again.reply.registrations(0) != 0);
  CHECK(again.reply.metas(0) >= 70'000);
  const absl::Status twice = node.Unregister(trainer, {again.reply.registrations(0), 0});
  CHECK(twice.code() == absl::StatusCode::kNotFound);
  CHECK_THAT(std::string(twice.message()), Contains("registration 0"));
  // The first of the two has been given back nevertheless, also in the book.
  CHECK(describe(0, 1).reply.registrations(0) != again.reply.registrations(0));
}

TEST_CASE("Engine: a Join whose caller goes is answered at once, and its place is given up soon") {
  Node node;
  const Trainer trainer = node.Attach();
  const auto cancelled = Await<v1::JoinReply>([&](Answer<v1::JoinReply> answer) {
    node.BeginJoin(trainer.token, node.JoinRequestOf(0, 2), std::move(answer))();
  });
  CHECK(cancelled.status.code() == absl::StatusCode::kCancelled);
  pollfd entry{trainer.lifeline.get(), POLLRDHUP, 0};
  CHECK(::poll(&entry, 1, 20'000) == 1);
}

TEST_CASE(
    "Engine: who has died while a job gathered, and comes again at once, is in the next one") {
  Node node;
  Trainer first = node.Attach();
  const v1::JoinRequest rank_0 = node.JoinRequestOf(0, 2);
  const auto died = Await<v1::JoinReply>([&](Answer<v1::JoinReply> answer) {
    static_cast<void>(node.BeginJoin(first.token, rank_0, std::move(answer)));
    first.lifeline.Reset();
  });
  CHECK_FALSE(died.status.ok());

  const Trainer again = node.Attach();
  const Trainer other = node.Attach();
  v1::JoinRequest rank_1 = rank_0;
  rank_1.set_rank(1);
  rank_1.set_local_rank(1);
  std::promise<absl::Status> came_again;
  static_cast<void>(node.BeginJoin(again.token, rank_0, [&](const absl::Status& status, auto) {
    came_again.set_value(status);
  }));
  const auto joined = Await<v1::JoinReply>([&](Answer<v1::JoinReply> answer) {
    static_cast<void>(node.BeginJoin(other.token, rank_1, std::move(answer)));
  });
  CHECK(joined.status == absl::OkStatus());
  CHECK(came_again.get_future().get() == absl::OkStatus());
}

TEST_CASE("Engine: lists are answered, and what is asked for when it stops is answered, too") {
  Node node;
  const Trainer trainer = node.Join();
  const auto jobs = Await<v1::JobsReply>(
      [&](Answer<v1::JobsReply> answer) { node.engine->ListJobs({1000}, {}, std::move(answer)); });
  REQUIRE(jobs.status.ok());
  CHECK(jobs.reply.schema_version() == 1);
  CHECK(jobs.reply.jobs_size() == 1);
  const auto queues = Await<v1::QueuesReply>([&](Answer<v1::QueuesReply> answer) {
    node.engine->ListQueues({1000}, {}, std::move(answer));
  });
  CHECK(queues.reply.queues_size() == 1);
  const auto communicators =
      Await<v1::CommunicatorsReply>([&](Answer<v1::CommunicatorsReply> answer) {
        node.engine->ListCommunicators({1000}, {}, std::move(answer));
      });
  CHECK(communicators.reply.communicators_size() == 1);
  const auto stopped =
      Await<v1::RegisterTensorsReply>([&](Answer<v1::RegisterTensorsReply> answer) {
        node.engine->RegisterTensors({1000}, trainer.token, Describe(trainer, kMany, false),
                                     std::move(answer));
        node.engine->Stop();
      });
  CHECK((stopped.status.ok() || stopped.status.code() == absl::StatusCode::kUnavailable));
}

TEST_CASE("Engine: a reload counts for what users may hold from then on") {
  Node node(std::uint64_t{256} << 10);
  const Trainer trainer = node.Join();
  CHECK_FALSE(node.Register(trainer, Describe(trainer, 10'000, false)).status.ok());
  Config config;
  config.node_name = "node-a";
  config.registration_bytes_per_user = std::uint64_t{256} << 20;
  node.engine->Reload(config);
  CHECK(node.Register(trainer, Describe(trainer, 10'000, false)).status.message() == "");
}

}  // namespace
}  // namespace ringd
