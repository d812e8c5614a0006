// What an engine's store of plans is given, and hands on.
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/jobs/plans/plan_store.h"

namespace ringd {
namespace {

using std::chrono::microseconds;

constexpr std::int64_t kNow = 1'790'000'000;
const std::string kAlices = "1000-nodes";
const std::string kBobs = "100-nodes";

KeptPlan Plan(const std::string& name, int tensors = 1) {
  KeptPlan plan;
  plan.buckets.emplace_back();
  for (int i = 0; i < tensors; ++i) {
    KeptTensor tensor;
    tensor.name = name + (i == 0 ? "" : std::to_string(i));
    tensor.meta.shape = {8};
    plan.buckets[0].push_back(std::move(tensor));
  }
  return plan;
}

StoredPlan Stored(const std::string& nodes, KeptPlan plan) {
  return {nodes, TensorsKey(plan), std::make_shared<const KeptPlan>(std::move(plan))};
}

LinkMatrix Links(double bytes_per_second) {
  LinkMatrix links(2);
  links.at(0, 1) = links.at(1, 0) = {microseconds(10), bytes_per_second};
  return links;
}

StoredLink Link(const std::string& from, const std::string& to, double bytes_per_second = 1e9) {
  return {from, to, {microseconds(10), bytes_per_second}, kNow};
}

class Recorded final : public PlanKeeper {
 public:
  void Keep(KeptState changed) override { kept.push_back(std::move(changed)); }
  void KeepUnmeasured(const std::vector<std::string>& names, std::int64_t unix_seconds) override {
    unmeasured.emplace_back(names, unix_seconds);
  }

  std::vector<KeptState> kept;
  std::vector<std::pair<std::vector<std::string>, std::int64_t>> unmeasured;
};

TEST_CASE("PlanStore: an engine's begins with what is known, and tells only what is new") {
  Recorded keeper;
  PlanStore store({{Stored(kAlices, Plan("a"))}, {Link("x", "y"), Link("y", "x")}, {}}, &keeper);
  CHECK(store.Find(kAlices).size() == 1);
  CHECK(store.FindLinks({"x", "y"}, kNow).has_value());
  CHECK(keeper.kept.empty());

  store.Put(kAlices, Plan("b"));
  store.PutLinks({"u", "v"}, Links(2e9), kNow);
  store.PutTrial({{"u", "v"}, {}, kNow});
  store.NoteUnmeasured({"u", "w"}, kNow);
  REQUIRE(keeper.kept.size() == 3);
  REQUIRE(keeper.kept[0].plans.size() == 1);
  CHECK(keeper.kept[0].plans[0].nodes == kAlices);
  CHECK(keeper.kept[0].plans[0].plan->buckets[0][0].name == "b");
  CHECK(keeper.kept[0].links.empty());
  CHECK(keeper.kept[1].links == std::vector{Link("u", "v", 2e9), Link("v", "u", 2e9)});
  CHECK(keeper.kept[1].plans.empty());
  CHECK(keeper.kept[2].trials.size() == 1);
  CHECK(keeper.unmeasured.size() == 1);
  CHECK(store.Find(kAlices).size() == 2);
  CHECK_FALSE(store.IsWorthMeasuring({"u", "w"}, kNow));
}

TEST_CASE("PlanStore: takes over what an engine has told, but no other user's plans") {
  PlanStore store("");
  store.Put(kAlices, Plan("old"));
  store.PutLinks({"x", "y"}, Links(1e9), kNow - 10);
  store.PutLinks({"u", "v"}, Links(1e9), kNow - 10);
  KeptState changed{{Stored(kAlices, Plan("new")), Stored(kBobs, Plan("new")),
                     Stored("1000", Plan("new")), Stored(kAlices, Plan("newer"))},
                    {Link("x", "y", 3e9), Link("y", "x", 4e9), Link("x", "y", 5e9)},
                    {{{"x", "y"}, {}, kNow}}};
  changed.plans[0].tensors = "its own word";
  store.Merge(std::move(changed), 1000);
  const auto plans = store.Find(kAlices);
  REQUIRE(plans.size() == 3);
  CHECK(plans[0]->buckets[0][0].name == "new");
  CHECK(plans[1]->buckets[0][0].name == "newer");
  CHECK(plans[2]->buckets[0][0].name == "old");
  CHECK(store.Find(kBobs).empty());
  CHECK(store.Find("1000").empty());
  CHECK(store.FindLinks({"x", "y"}, kNow)->links.at(0, 1).bytes_per_second == 3e9);
  CHECK(store.FindLinks({"x", "y"}, kNow)->links.at(1, 0).bytes_per_second == 4e9);
  CHECK(store.FindLinks({"u", "v"}, kNow)->unix_seconds == kNow - 10);
  CHECK(store.FindTrial({"x", "y"}, kNow).has_value());
  // The same tensors again: one plan stands for the other.
  store.Put(kAlices, Plan("new"));
  CHECK(store.Find(kAlices).size() == 3);
}

TEST_CASE("PlanStore: what is merged is in the file, too") {
  char folder[] = "/tmp/plansXXXXXX";
  REQUIRE(::mkdtemp(folder) != nullptr);
  PlanStore(folder).Merge({{Stored(kAlices, Plan("a"))}, {}, {}}, 1000);
  CHECK(PlanStore(folder).Find(kAlices).size() == 1);
  std::filesystem::remove_all(folder);
}

TEST_CASE("PlanStore: an engine is given its user's plans, and all links and trials") {
  PlanStore store("");
  store.Put(kAlices, Plan("a"));
  store.Put(kBobs, Plan("b"));
  store.PutLinks({"x", "y"}, Links(1e9), kNow);
  store.PutTrial({{"x", "y"}, {}, kNow});
  const auto passed = ParseState(FormatState(store.ForUser(1000)));
  REQUIRE(passed.ok());
  CHECK(passed->left_out.empty());
  REQUIRE(passed->state.plans.size() == 1);
  CHECK(passed->state.plans[0].nodes == kAlices);
  CHECK(passed->state.links.size() == 2);
  CHECK(passed->state.trials.size() == 1);
  CHECK(store.ForUser(10).plans.empty());
}

TEST_CASE("PlanStore: an engine is given no more than 1 MiB, and what was used last of it") {
  PlanStore store("");
  // About 80 bytes a tensor.
  store.Put(kAlices, Plan("rest", 10'000));
  store.Put(kAlices, Plan("last", 10'000));
  store.PutTrial({{"x", "y"}, {}, kNow});
  const KeptState passed = store.ForUser(1000);
  CHECK(FormatState(passed).size() <= kMostPassedBytes);
  REQUIRE(passed.plans.size() == 1);
  CHECK(passed.plans[0].plan->buckets[0][0].name == "last");
  CHECK(passed.trials.size() == 1);
}

TEST_CASE("Bounded: a plan that is too large alone is left out, and of many links the last") {
  CHECK(Bounded({{Stored(kAlices, Plan("a", 40'000))}, {}, {}}, kMostPassedBytes).plans.empty());
  KeptState state{{Stored(kAlices, Plan("a"))}, {}, {}};
  for (int i = 0; i < 110'000; ++i) state.links.push_back(Link("from", std::to_string(i)));
  const KeptState bounded = Bounded(state, kMostPassedBytes);
  CHECK(FormatState(bounded).size() <= kMostPassedBytes);
  CHECK(FormatBounded(state, kMostPassedBytes) == FormatState(bounded));
  CHECK(FormatBounded(bounded, kMostPassedBytes) == FormatState(bounded));
  CHECK(bounded.plans.size() == 1);
  REQUIRE(bounded.links.size() > 4'000);
  CHECK(bounded.links[0].to == "0");
}

TEST_CASE("NodesKey: begins with the user, of whom no other's number is a part") {
  Membership one;
  one.nodes = {{"a", "", {MemberRank{}}}};
  const std::string key = NodesKey(1000, one);
  CHECK(IsKeyOf(1000, key));
  CHECK_FALSE(IsKeyOf(100, key));
  CHECK_FALSE(IsKeyOf(10000, key));
  CHECK_FALSE(IsKeyOf(1000, "1000"));
}

}  // namespace
}  // namespace ringd
