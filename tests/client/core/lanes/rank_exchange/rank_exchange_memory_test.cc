// What ringd hands out for the rank exchange: taken when it is right, refused with words when it is
// not.
#include "client/core/lanes/rank_exchange/rank_exchange_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <thread>

#include "proto/base/memfd.h"
#include "tests/client/core/lanes/rank_exchange/rank_exchange_job.h"

namespace ringd::client {
namespace {

using Catch::Matchers::Contains;

Clock::time_point Now() { return Clock::now(); }

// Everything that ringd sends to one rank.
void Fill(RankExchangeMemory& memory, RankExchangeLinks::Node& node, std::uint32_t member) {
  memory.AddSegment({node.segment_bytes, member, 0}, node.segment);
  for (std::uint32_t other = 0; other < node.connections.size(); ++other) {
    if (node.connections[other].valid()) {
      memory.AddConnection({other, 0}, Duplicate(node.connections[other]));
    }
  }
}

// Why there is no exchange.
absl::Status Failure(RankExchangeMemory& memory, std::uint32_t announced) {
  const auto exchange = memory.MakeExchange(announced, Now());
  return exchange.status();
}

TEST_CASE("RankExchangeMemory: the root has a connection to each node, others one to the root") {
  RankExchangeLinks links(3, 2);
  for (std::uint32_t node = 0; node < 3; ++node) {
    RankExchangeMemory memory;
    Fill(memory, links[node], 1);
    const auto exchange = memory.MakeExchange(node == 0 ? 3 : 2, Now());
    REQUIRE(exchange.ok());
    CHECK(memory.member() == 1);
    CHECK((*exchange)->view().node_index() == node);
    CHECK((*exchange)->Usable());
  }
}

TEST_CASE("RankExchangeMemory: what comes late is waited for") {
  RankExchangeLinks links(2);
  RankExchangeMemory memory;
  std::thread ringd([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    Fill(memory, links[1], 0);
  });
  const auto exchange = memory.MakeExchange(2, InTenSeconds());
  ringd.join();
  CHECK(exchange.ok());
}

TEST_CASE("RankExchangeMemory: what does not come is said to be missing") {
  RankExchangeLinks links(2);
  RankExchangeMemory memory;
  memory.AddSegment({links[0].segment_bytes, 0, 0}, links[0].segment);
  memory.AddConnection({0, 0}, Duplicate(links[0].connections[0]));
  const absl::Status failure = Failure(memory, 2);
  CHECK(failure.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK_THAT(std::string(failure.message()), Contains("has not sent"));
}

TEST_CASE("RankExchangeMemory: the announced number must be what there is") {
  RankExchangeLinks links(3);
  RankExchangeMemory memory;
  Fill(memory, links[1], 0);
  const absl::Status failure = Failure(memory, 3);
  CHECK(failure.code() == absl::StatusCode::kInternal);
  CHECK_THAT(std::string(failure.message()), Contains("announced 3"));
}

TEST_CASE("RankExchangeMemory: connections that nobody expects are refused") {
  RankExchangeLinks links(3);
  RankExchangeMemory memory;
  SECTION("before the segment") {
    memory.AddConnection({0, 0}, Duplicate(links[1].connections[0]));
    CHECK_THAT(std::string(Failure(memory, 2).message()), Contains("to node 0, which is not"));
  }
  SECTION("twice") {
    Fill(memory, links[0], 0);
    memory.AddConnection({2, 0}, Duplicate(links[0].connections[2]));
    CHECK_THAT(std::string(Failure(memory, 3).message()), Contains("to node 2, which is not"));
  }
  SECTION("to a node that there is not") {
    Fill(memory, links[0], 0);
    memory.AddConnection({3, 0}, Duplicate(links[0].connections[2]));
    CHECK_THAT(std::string(Failure(memory, 3).message()), Contains("to node 3, which is not"));
  }
  SECTION("between nodes of which none is the root") {
    memory.AddSegment({links[1].segment_bytes, 0, 0}, links[1].segment);
    memory.AddConnection({2, 0}, Duplicate(links[0].connections[2]));
    CHECK_THAT(std::string(Failure(memory, 2).message()), Contains("to node 2, which is not"));
  }
  SECTION("without a descriptor") {
    memory.AddSegment({links[1].segment_bytes, 0, 0}, links[1].segment);
    memory.AddConnection({0, 0}, UniqueFd());
    CHECK_THAT(std::string(Failure(memory, 2).message()), Contains("no descriptor with node 0"));
  }
}

TEST_CASE("RankExchangeMemory: memory that makes no sense is refused") {
  RankExchangeLinks links(2, 2);
  RankExchangeMemory memory;
  RankExchangeLinks::Node& node = links[1];
  const auto failure = [&](const RankExchangeNotice& notice, const UniqueFd& fd) {
    memory.AddSegment(notice, fd);
    return Failure(memory, 2);
  };
  SECTION("no descriptor") {
    CHECK_THAT(std::string(failure({node.segment_bytes, 0, 0}, UniqueFd()).message()),
               Contains("no descriptor"));
  }
  SECTION("shorter than it says") {
    CHECK_FALSE(failure({node.segment_bytes + 4096, 0, 0}, node.segment).ok());
  }
  SECTION("mapped in part only") {
    CHECK(failure({node.segment_bytes - 1, 0, 0}, node.segment).code() ==
          absl::StatusCode::kInvalidArgument);
  }
  SECTION("no room for a header") {
    CHECK_THAT(std::string(failure({8, 0, 0}, node.segment).message()), Contains("too short"));
  }
  SECTION("empty") { CHECK_FALSE(failure({0, 0, 0}, node.segment).ok()); }
  SECTION("not sealed, so that it could be cut off under its readers") {
    const UniqueFd open(::memfd_create("open", MFD_CLOEXEC));
    REQUIRE(::ftruncate(open.get(), static_cast<off_t>(node.segment_bytes)) == 0);
    CHECK(failure({node.segment_bytes, 0, 0}, open).code() ==
          absl::StatusCode::kFailedPrecondition);
  }
  SECTION("of another version") {
    constexpr std::uint32_t kOther = kRankExchangeSegmentVersion + 1;
    reinterpret_cast<RankExchangeHeader*>(node.memory.data())->version = kOther;
    CHECK_THAT(std::string(failure({node.segment_bytes, 0, 0}, node.segment).message()),
               Contains("version " + std::to_string(kOther)));
  }
  SECTION("of more members than it has room for") {
    reinterpret_cast<RankExchangeHeader*>(node.memory.data())->member_count = 60;
    CHECK_THAT(std::string(failure({node.segment_bytes, 0, 0}, node.segment).message()),
               Contains("makes no sense"));
  }
  SECTION("without this rank") {
    CHECK_THAT(std::string(failure({node.segment_bytes, 2, 0}, node.segment).message()),
               Contains("member 2"));
  }
  SECTION("twice") {
    memory.AddSegment({node.segment_bytes, 0, 0}, node.segment);
    CHECK_THAT(std::string(failure({node.segment_bytes, 0, 0}, node.segment).message()),
               Contains("a second segment of the rank exchange"));
  }
}

}  // namespace
}  // namespace ringd::client
