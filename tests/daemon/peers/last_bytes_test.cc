#include "daemon/peers/last_bytes.h"

#include <catch2/catch.hpp>
#include <string>

namespace ringd {
namespace {

const std::string kWhy = "the engine of job 'x' (pid 7 on a) was killed by signal 9 (Killed)";

std::optional<absl::Status> ObituaryIn(const std::string& bytes, std::size_t piece) {
  LastBytes last;
  for (std::size_t i = 0; i < bytes.size(); i += piece) {
    const std::string part = bytes.substr(i, piece);
    last.Add(std::as_bytes(std::span(part)));
  }
  return last.Obituary();
}

TEST_CASE("LastBytes: an obituary is found behind whole frames, and behind a part of one") {
  const std::string payload(5'000, 'm');
  const std::string frame =
      EncodePeerFrame(PeerFrameKind::kMessage, std::as_bytes(std::span(payload)));
  const std::string end = EncodePeerEnd(absl::DataLossError(kWhy));
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{100'000}}) {
    for (const std::size_t sent :
         {std::size_t{0}, std::size_t{3}, std::size_t{4'000}, frame.size()}) {
      INFO(sent << " bytes before, in pieces of " << piece);
      const auto obituary = ObituaryIn(frame.substr(0, sent) + end, piece);
      REQUIRE(obituary.has_value());
      CHECK(absl::IsDataLoss(*obituary));
      CHECK(obituary->message() == kWhy);
    }
  }
}

TEST_CASE("LastBytes: the longest obituary is found, too") {
  const std::string end =
      EncodePeerEnd(absl::DataLossError(std::string(2 * kMaxPeerReasonBytes, 'x')));
  const auto obituary = ObituaryIn(std::string(9'000, '\1') + end, 1'000);
  REQUIRE(obituary.has_value());
  CHECK(obituary->message().size() == kMaxPeerReasonBytes);
}

TEST_CASE("LastBytes: other ends, and an obituary that something follows, are none") {
  CHECK_FALSE(ObituaryIn("", 1).has_value());
  CHECK_FALSE(ObituaryIn(EncodePeerEnd(absl::AbortedError(kWhy)), 5).has_value());
  CHECK_FALSE(ObituaryIn(EncodePeerEnd(absl::OkStatus()), 5).has_value());
  CHECK_FALSE(ObituaryIn(EncodePeerEnd(absl::DataLossError(kWhy)) + "x", 5).has_value());
}

}  // namespace
}  // namespace ringd
