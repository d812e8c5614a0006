#include "daemon/supervisor/keep_queue.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "daemon/jobs/plans/plan_file.h"

namespace ringd {
namespace {

constexpr uid_t kUser = 1001;
constexpr uid_t kOther = 1002;
constexpr std::uint64_t kEngine = 1;

v1::EngineKeep KeepOf(std::string state) {
  v1::EngineKeep keep;
  keep.set_state(std::move(state));
  return keep;
}

KeptState LinksFrom(const std::string& name, int count) {
  KeptState state;
  for (int i = 0; i < count; ++i) {
    StoredLink link;
    link.from = name;
    link.to = "node-" + std::to_string(i);
    link.link.bytes_per_second = 1e9;
    link.unix_seconds = 1;
    state.links.push_back(std::move(link));
  }
  return state;
}

void NeverRefuse(const absl::Status& why) { FAIL(why.message()); }

// Keeps the queue's thread until it is told to go on.
struct HeldQueue {
  HeldQueue() {
    queue.Add(kUser, kEngine, KeepOf("no state"), [this](const absl::Status&) {
      reached.set_value();
      released.get_future().wait_for(std::chrono::seconds(60));
    });
    REQUIRE(reached.get_future().wait_for(std::chrono::seconds(60)) == std::future_status::ready);
  }

  std::promise<void> reached;
  std::promise<void> released;
  PlanStore plans;
  KeepQueue queue{&plans};
};

TEST_CASE("KeepQueue: what a sound engine has to be kept is kept, also if ringd ends at once") {
  PlanStore plans;
  v1::EngineKeep keep = KeepOf(FormatState(LinksFrom("node-a", 3)));
  keep.add_unmeasured("node-b");
  keep.set_unix_seconds(7);
  {
    KeepQueue queue(&plans);
    CHECK(queue.Add(kUser, kEngine, keep, NeverRefuse));
    // As much as passes at once.
    KeptState most = Bounded(LinksFrom(std::string(100, 'n'), 16'000), kMostPassedBytes);
    CHECK(most.links.size() > 1000);
    CHECK(queue.Add(kUser, kEngine, KeepOf(FormatState(most)), NeverRefuse));
  }
  CHECK(plans.ForUser(kUser).links.size() > 1000);
  CHECK(plans.Unmeasured().count({"node-b"}) == 1);
}

TEST_CASE("KeepQueue: a user who has much to be kept keeps others waiting for one piece of it") {
  std::string order;
  {
    HeldQueue held;
    for (int i = 0; i < 100; ++i) {
      REQUIRE(held.queue.Add(kUser, kEngine, KeepOf("none"),
                             [&order](const absl::Status&) { order += 'u'; }));
    }
    REQUIRE(
        held.queue.Add(kOther, 2, KeepOf("none"), [&order](const absl::Status&) { order += 'o'; }));
    held.released.set_value();
  }
  CHECK(order.size() == 101);
  CHECK(order.find('o') <= 1);
}

TEST_CASE("KeepQueue: so much of an engine waits, and of a user's engines together") {
  HeldQueue held;
  const auto add = [&held](uid_t user, std::uint64_t engine) {
    return held.queue.Add(user, engine, KeepOf(std::string(kMostPassedBytes, ' ')),
                          [](const absl::Status&) {});
  };
  std::size_t of_engine = 0;
  while (of_engine < 100 && add(kUser, kEngine)) ++of_engine;
  CHECK(of_engine == KeepQueue::kMostBytesOfEngine / kMostPassedBytes - 1);
  std::size_t of_user = of_engine;
  for (std::uint64_t engine = 2; engine < 100; ++engine) {
    while (of_user < 100 && add(kUser, engine)) ++of_user;
  }
  CHECK(of_user == KeepQueue::kMostBytesOfUser / kMostPassedBytes - 1);
  // Small ones count, too.
  std::size_t small = 0;
  while (small < 1'000'000 && held.queue.Add(kOther, 200, KeepOf(""), [](const absl::Status&) {})) {
    ++small;
  }
  CHECK(small <= KeepQueue::kMostBytesOfEngine / KeepQueue::kEntryBytes);
  CHECK(add(kOther, 201));
  held.released.set_value();
}

TEST_CASE("KeepQueue: what is too long is refused at once, and takes nothing") {
  PlanStore plans;
  KeepQueue queue(&plans);
  std::vector<std::string> refused;
  const auto refuse = [&](const absl::Status& why) { refused.emplace_back(why.message()); };
  queue.Add(kUser, kEngine, KeepOf(std::string(kMostPassedBytes + 1, ' ')), refuse);
  v1::EngineKeep names = KeepOf(FormatState({}));
  for (int i = 0; i < 33; ++i) names.add_unmeasured("n");
  queue.Add(kUser, kEngine, names, refuse);
  REQUIRE(refused.size() == 2);
  CHECK(refused[0] == "wants to keep what is none: it is too long");
  CHECK(refused[1] == "names nodes that can't be measured");
}

}  // namespace
}  // namespace ringd
