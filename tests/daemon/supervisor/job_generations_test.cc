#include "daemon/supervisor/job_generations.h"

#include <catch2/catch.hpp>
#include <string>

namespace ringd {
namespace {

constexpr uid_t kAlice = 1001;
constexpr uid_t kBob = 1002;

TEST_CASE("JobGenerations: a name goes on where its last job ended, each user's by itself") {
  JobGenerations generations;
  CHECK(generations.Next(kAlice, "job") == 0);
  generations.Note(kAlice, "job", 3);
  CHECK(generations.Next(kAlice, "job") == 3);
  CHECK(generations.Next(kAlice, "other") == 0);
  CHECK(generations.Next(kBob, "job") == 0);
  generations.Note(kAlice, "job", 4);
  CHECK(generations.Next(kAlice, "job") == 4);
  // Of two engines of one name the former may be heard later.
  generations.Note(kAlice, "job", 2);
  CHECK(generations.Next(kAlice, "job") == 4);
}

TEST_CASE("JobGenerations: who has many names loses his oldest, and none begins again from 0") {
  JobGenerations generations;
  generations.Note(kBob, "job", 7);
  generations.Note(kAlice, "old", 9);
  generations.Note(kAlice, "young", 5);
  for (std::size_t i = 0; i < JobGenerations::kMostOfUser - 1; ++i) {
    generations.Note(kAlice, std::to_string(i), 2);
  }
  // The oldest one is forgotten.
  CHECK(generations.Next(kAlice, "old") == 9);
  CHECK(generations.Next(kAlice, "new") == 9);
  CHECK(generations.Next(kAlice, "young") == 5);
  CHECK(generations.Next(kBob, "job") == 7);
  CHECK(generations.Next(kBob, "new") == 0);
}

TEST_CASE("JobGenerations: of too many users the one whose job has begun first is forgotten") {
  JobGenerations generations;
  for (std::size_t i = 0; i <= JobGenerations::kMostUsers; ++i) {
    generations.Note(static_cast<uid_t>(i), "job", 7);
  }
  CHECK(generations.Next(0, "job") == 0);
  CHECK(generations.Next(1, "job") == 7);
  CHECK(generations.Next(JobGenerations::kMostUsers, "job") == 7);
}

}  // namespace
}  // namespace ringd
