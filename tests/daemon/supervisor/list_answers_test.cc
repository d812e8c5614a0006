#include "daemon/supervisor/list_answers.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/supervisor/part_count.h"
#include "proto/rpc/admin.pb.h"

namespace ringd {
namespace {

constexpr std::size_t kPlenty = 1'000'000;

std::string AnswerOf(std::size_t host_bytes, int members = 1) {
  v1::JobsReply reply;
  v1::Job& job = *reply.add_jobs();
  for (int i = 0; i < members; ++i) job.add_local_members();
  job.mutable_local_members(0)->set_host(std::string(host_bytes, 'h'));
  return reply.SerializeAsString();
}

struct Gathering {
  Gathering(const std::vector<ListAnswers::Asked>& asked, const ListAnswers::Limits& limits)
      : gathered(
            asked, v1::JobsReply::descriptor(), limits,
            [this](std::vector<absl::StatusOr<std::string>> all) { answers = std::move(all); }) {}
  // 'a': kept; 'x': left out; 'e': another error.
  std::string Kept() const {
    std::string kept;
    for (const auto& answer : answers) {
      kept += answer.ok() ? 'a' : absl::IsResourceExhausted(answer.status()) ? 'x' : 'e';
    }
    return kept;
  }

  std::vector<absl::StatusOr<std::string>> answers;
  ListAnswers gathered;
};

TEST_CASE("CountParts: counts messages and texts within messages, and stops") {
  const auto count = [](const std::string& bytes, std::size_t most) {
    return CountParts(*v1::JobsReply::descriptor(), bytes, most).all;
  };
  CHECK(count("", kPlenty) == 0);
  CHECK(count(AnswerOf(10), kPlenty) == 3);  // job, member, host
  CHECK(count(AnswerOf(10, 1000), kPlenty) == 1002);
  CHECK(count(AnswerOf(10, 1000), 500) == 501);
  // Two bytes each, and more than a hundred in memory.
  std::string empty_jobs;
  for (int i = 0; i < 1000; ++i) empty_jobs += std::string("\x12\x00", 2);
  CHECK(count(empty_jobs, kPlenty) == 1000);
  CHECK(count("\x12\xff\xff\xff\xff\x07", kPlenty) <= 1);
  CHECK(count("rubbish", kPlenty) <= 7);
}

TEST_CASE("ListAnswers: hands on all that fits, in the order of those who were asked") {
  Gathering two({{1}, {2}}, {});
  two.gathered.Take(1, absl::OkStatus(), {"second", nullptr});
  CHECK(two.answers.empty());
  two.gathered.Take(0, absl::OkStatus(), {"first", nullptr});
  REQUIRE(two.answers.size() == 2);
  CHECK(*two.answers[0] == "first");
  CHECK(*two.answers[1] == "second");
}

TEST_CASE("ListAnswers: an engine that has not answered costs the others nothing") {
  Gathering two({{1}, {2}}, {});
  two.gathered.Take(0, absl::DeadlineExceededError("late"), {"", nullptr});
  two.gathered.Take(1, absl::OkStatus(), {"answer", nullptr});
  CHECK(two.Kept() == "ea");
}

TEST_CASE("ListAnswers: if not all fit the longest goes") {
  Gathering three({{1}, {2}, {3}}, {.bytes = 3000, .parts = kPlenty});
  three.gathered.Take(0, absl::OkStatus(), {AnswerOf(1000), nullptr});
  three.gathered.Take(1, absl::OkStatus(), {AnswerOf(2500), nullptr});
  three.gathered.Take(2, absl::OkStatus(), {AnswerOf(1000), nullptr});
  CHECK(three.Kept() == "axa");
}

TEST_CASE("ListAnswers: what is short on the wire and long in memory goes, too") {
  Gathering two({{1}, {2}}, {.bytes = 10'000, .parts = 1000});
  two.gathered.Take(0, absl::OkStatus(), {AnswerOf(3000), nullptr});
  two.gathered.Take(1, absl::OkStatus(), {AnswerOf(0, 1000), nullptr});
  CHECK(two.Kept() == "ax");
}

TEST_CASE("ListAnswers: what is added to each row counts, too") {
  std::string empty_jobs;
  for (int i = 0; i < 1000; ++i) empty_jobs += std::string("\x12\x00", 2);
  CHECK(CountParts(*v1::JobsReply::descriptor(), AnswerOf(10, 1000), kPlenty).rows == 1);
  for (const bool fits : {true, false}) {
    Gathering two({{1, 10}, {2, fits ? std::size_t{10} : 11}}, {.bytes = 24'010, .parts = kPlenty});
    two.gathered.Take(0, absl::OkStatus(), {empty_jobs, nullptr});
    two.gathered.Take(1, absl::OkStatus(), {empty_jobs, nullptr});
    CHECK(two.Kept() == (fits ? "aa" : "ax"));
  }
}

TEST_CASE("ListAnswers: a user with many engines leaves room for one with one") {
  Gathering many({{1}, {1}, {1}, {2}, {1}}, {.bytes = 3000, .parts = kPlenty});
  for (const std::size_t place : {0, 1, 2, 4}) {
    many.gathered.Take(place, absl::OkStatus(), {AnswerOf(600), nullptr});
  }
  many.gathered.Take(3, absl::OkStatus(), {AnswerOf(1500), nullptr});
  REQUIRE(many.answers.size() == 5);
  CHECK(many.answers[3].ok());
  const std::string kept = many.Kept();
  CHECK(std::count(kept.begin(), kept.end(), 'x') == 2);
}

}  // namespace
}  // namespace ringd
