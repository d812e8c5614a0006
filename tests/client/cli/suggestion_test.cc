#include "client/cli/views/suggestion.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace ringd::cli {

TEST_CASE("TypingErrors: counts letters left out, added, replaced and swapped") {
  CHECK(TypingErrors("status", "status") == 0);
  CHECK(TypingErrors("stauts", "status") == 1);
  CHECK(TypingErrors("statu", "status") == 1);
  CHECK(TypingErrors("sttatus", "status") == 1);
  CHECK(TypingErrors("stetus", "status") == 1);
  CHECK(TypingErrors("tsatsu", "status") == 2);
  CHECK(TypingErrors("", "abc") == 3);
  CHECK(TypingErrors("abc", "") == 3);
}

TEST_CASE("Suggestion: the most similar word, or none") {
  const std::vector<std::string> known = {"status", "jobs", "comms", "queues", "run"};
  CHECK(Suggestion("stauts", known) == "status");
  CHECK(Suggestion("job", known) == "jobs");
  CHECK(Suggestion("rnu", known) == "run");
  CHECK(Suggestion("st", known) == "status");
  CHECK(Suggestion("q", known).empty());
  CHECK(Suggestion("", known).empty());
  CHECK(Suggestion("frobnicate", known).empty());
  CHECK(Suggestion(std::string(100'000, 's'), known).empty());
}

}  // namespace ringd::cli
