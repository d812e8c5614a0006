#include "daemon/config/fusion_setting.h"

#include <catch2/catch.hpp>

namespace ringd {

using Kind = FusionPolicy::Kind;
using Catch::Matchers::Contains;

TEST_CASE("ParseFusion: three words and sizes") {
  CHECK(ParseFusion("learned").value() == FusionPolicy{Kind::kLearned, 0});
  CHECK(ParseFusion("pinned").value() == FusionPolicy{Kind::kPinned, 0});
  CHECK(ParseFusion("off").value() == FusionPolicy{Kind::kOff, 0});
  CHECK(ParseFusion("64MiB").value() == FusionPolicy{Kind::kFixed, std::size_t{64} << 20});
  CHECK(ParseFusion("1").value() == FusionPolicy{Kind::kFixed, 1});
}

TEST_CASE("ParseFusion: anything else is told what is allowed") {
  for (const char* text : {"", "on", "Learned", "0", "65GiB", "-1", "64 bananas", "learned "}) {
    CAPTURE(text);
    const auto parsed = ParseFusion(text);
    REQUIRE_FALSE(parsed.ok());
    CHECK_THAT(std::string(parsed.status().message()), Contains("learned, pinned, off, or a size"));
  }
}

TEST_CASE(
    "FusionPolicy: only what is learned changes, and fixed sizes hold from the first step on") {
  CHECK(FusionPolicy{Kind::kLearned, 0}.MayReplan());
  CHECK_FALSE(FusionPolicy{Kind::kPinned, 0}.MayReplan());
  CHECK_FALSE(FusionPolicy{Kind::kFixed, 9}.MayReplan());
  CHECK(FusionPolicy{Kind::kLearned, 0}.NegotiatedThreshold(100) == 100);
  CHECK(FusionPolicy{Kind::kFixed, 9}.NegotiatedThreshold(100) == 9);
  CHECK(FusionPolicy{Kind::kOff, 0}.NegotiatedThreshold(100) == 0);
  const std::vector<PlanTensor> tensors(4, PlanTensor{8, {}, 0, false});
  CHECK(FusionPolicy{Kind::kOff, 0}.MakePlanner(100)->Plan(tensors, LinkModel()).size() == 4);
  CHECK(FusionPolicy{Kind::kFixed, 16}.MakePlanner(100)->Plan(tensors, LinkModel()).size() == 2);
  CHECK(FusionPolicy{Kind::kPinned, 0}.MakePlanner(100)->Plan(tensors, LinkModel()).size() == 1);
}

}  // namespace ringd
