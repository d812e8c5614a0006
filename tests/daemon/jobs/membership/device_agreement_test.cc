#include "daemon/jobs/membership/device_agreement.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace ringd {
namespace {

using std::chrono::seconds;

v1::RankDevice Word(int rank, const std::string& why_host = "") {
  v1::RankDevice word;
  word.set_rank(rank);
  word.set_goes_by_host(!why_host.empty());
  word.set_why(why_host);
  return word;
}

v1::RankDevice NoGpu(int rank) {
  v1::RankDevice word;
  word.set_rank(rank);
  word.set_has_no_gpu(true);
  word.set_why("no driver");
  return word;
}

struct Node {
  struct Answer {
    absl::Status status;
    AgreedDevices agreed;
  };

  // The position of its answer.
  std::size_t Ask(int rank, std::vector<int> ranks) {
    answers.emplace_back();
    const std::size_t position = answers.size() - 1;
    agreement.Add({rank, std::move(ranks), start, start + seconds(10),
                   [this, position](const absl::Status& status, const AgreedDevices& agreed) {
                     CHECK_FALSE(answers[position].has_value());
                     answers[position] = {status, agreed};
                   }});
    return position;
  }

  const Clock::time_point start = Clock::now();
  std::vector<std::optional<Answer>> answers;
  DeviceAgreement agreement{[](int rank) { return absl::StrCat("rank ", rank, " on node-b"); }};
};

}  // namespace

TEST_CASE("DeviceAgreement: NCCL is used once all ranks have said that they can") {
  Node node;
  node.Ask(0, {0, 1, 2});
  node.agreement.OnWord(Word(0));
  node.agreement.OnWord(Word(2));
  CHECK_FALSE(node.answers[0].has_value());
  CHECK(node.agreement.anyone_waits());
  node.agreement.OnWord(Word(1));
  REQUIRE(node.answers[0].has_value());
  CHECK(node.answers[0]->status.ok());
  CHECK_FALSE(node.answers[0]->agreed.goes_by_host);
  CHECK(node.answers[0]->agreed.why.empty());
  CHECK_FALSE(node.agreement.anyone_waits());
}

TEST_CASE("DeviceAgreement: one rank without NCCL sends all by host, at once and later") {
  Node node;
  node.Ask(0, {0, 1, 2});
  node.agreement.OnWord(Word(1, "NCCL is missing"));
  // Also whoever asks then, before others have said anything.
  node.Ask(2, {0, 1, 2});
  for (const auto& answer : node.answers) {
    REQUIRE(answer.has_value());
    CHECK(answer->agreed.goes_by_host);
    CHECK(answer->agreed.why == "rank 1 on node-b: NCCL is missing");
  }
  // What a rank has said of NCCL is not taken back.
  node.agreement.OnWord(Word(1));
  CHECK(node.answers[node.Ask(0, {1, 0})]->agreed.goes_by_host);
}

TEST_CASE("DeviceAgreement: a communicator without such a rank uses NCCL") {
  Node node;
  node.agreement.OnWord(Word(0));
  node.agreement.OnWord(Word(1, "NCCL is missing"));
  node.agreement.OnWord(Word(2));
  CHECK_FALSE(node.answers[node.Ask(0, {2, 0})]->agreed.goes_by_host);
  CHECK(node.answers[node.Ask(0, {0, 1, 2})]->agreed.goes_by_host);
}

TEST_CASE("DeviceAgreement: nobody waits for a rank that has left or has no GPU") {
  Node node;
  node.agreement.OnWord(Word(0));
  node.Ask(0, {0, 1, 2});
  node.Ask(1, {0, 1, 2});
  node.agreement.OnLeft(1);
  // Its own call ends.
  REQUIRE(node.answers[1].has_value());
  CHECK(absl::IsCancelled(node.answers[1]->status));
  CHECK_FALSE(node.answers[0].has_value());
  node.agreement.OnWord(NoGpu(2));
  REQUIRE(node.answers[0].has_value());
  CHECK_FALSE(node.answers[0]->agreed.goes_by_host);
  // It may have one later.
  node.agreement.OnWord(Word(2, "asked for"));
  CHECK(node.answers[node.Ask(0, {0, 2})]->agreed.goes_by_host);
}

TEST_CASE("DeviceAgreement: who waits for long is warned, and goes by NCCL when the time is over") {
  Node node;
  node.Ask(0, {0, 1, 2, 3, 4, 5, 6});
  std::vector<std::pair<int, std::string>> warnings;
  std::string instead;
  const auto tick = [&](seconds at) {
    node.agreement.Tick(
        node.start + at, seconds(3), instead,
        [&](int rank, const std::string& text) { warnings.emplace_back(rank, text); });
  };
  node.agreement.OnWord(Word(0));
  node.agreement.OnWord(Word(1));
  tick(seconds(2));
  CHECK(warnings.empty());
  tick(seconds(3));
  tick(seconds(5));
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].first == 0);
  CHECK(warnings[0].second ==
        "rank 0 waits for rank 2 on node-b; rank 3 on node-b; rank 4 on node-b; rank 5 on node-b; "
        "and 1 more to open a GPU, since 3 s");
  CHECK_FALSE(node.answers[0].has_value());
  // What they have said may not have come.
  instead = "ringd on node-a, which does not answer";
  tick(seconds(6));
  REQUIRE(warnings.size() == 2);
  CHECK(warnings[1].second == "rank 0 waits for ringd on node-a, which does not answer, since 6 s");
  tick(seconds(10));
  REQUIRE(node.answers[0].has_value());
  CHECK_FALSE(node.answers[0]->agreed.goes_by_host);
  CHECK(node.answers[0]->agreed.why.find("rank 2 on node-b") == 0);
}

TEST_CASE("DeviceAgreement: who has an NCCL communicator still is known with its operations") {
  Node node;
  v1::RankDevice word = Word(1);
  word.add_kept()->set_unique_id("id");
  word.mutable_kept(0)->set_launched(7);
  node.agreement.OnWord(NoGpu(1));
  CHECK_FALSE(node.agreement.HasKept(1, "id", 7));
  node.agreement.OnWord(word);
  CHECK(node.agreement.HasKept(1, "id", 7));
  CHECK_FALSE(node.agreement.HasKept(1, "id", 8));
  CHECK_FALSE(node.agreement.HasKept(1, "other", 7));
  CHECK_FALSE(node.agreement.HasKept(0, "id", 7));
  node.agreement.OnLeft(1);
  CHECK_FALSE(node.agreement.HasKept(1, "id", 7));
}

TEST_CASE("DeviceAgreement: a job's failure ends every wait, and a rank has so many at most") {
  Node node;
  for (std::ptrdiff_t i = 0; i < DeviceAgreement::kMostAsks; ++i) node.Ask(0, {0, 1});
  CHECK(absl::IsResourceExhausted(node.answers[node.Ask(0, {0, 1})]->status));
  CHECK_FALSE(node.answers[node.Ask(1, {0, 1})].has_value());
  node.agreement.Fail(absl::AbortedError("rank 1 died"));
  for (const auto& answer : node.answers) REQUIRE(answer.has_value());
  CHECK(node.answers[0]->status.message() == "rank 1 died");
  CHECK(absl::IsAborted(node.answers.back()->status));
}

}  // namespace ringd
