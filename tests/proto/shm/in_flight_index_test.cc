#include "proto/shm/in_flight_index.h"

#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <cstddef>
#include <vector>

#include "proto/base/memfd.h"
#include "proto/base/memory_mapping.h"

namespace ringd {
namespace {

struct Segment {
  Segment() {
    const std::uint64_t bytes = JobSegmentView::TensorsOffset(2);
    auto fd = CreateSealedMemfd("in-flight-index-test", bytes);
    REQUIRE(fd.ok());
    auto mapped = MemoryMapping::Map(fd->get(), bytes);
    REQUIRE(mapped.ok());
    memory = *std::move(mapped);
    view = JobSegmentView(memory.data(), 2);
  }
  // What one who looks on finds.
  std::vector<std::uint64_t> Words(std::uint32_t member) const {
    std::vector<std::uint64_t> words;
    for (std::uint32_t p = 0; p < view.Member(member).in_flight_places; ++p) {
      if (view.InFlight(member, p) != 0) words.push_back(view.InFlight(member, p));
    }
    return words;
  }
  MemoryMapping memory;
  JobSegmentView view;
};

TEST_CASE("InFlightTensor: what was said comes back, and is never nothing") {
  for (const InFlightTensor said : {InFlightTensor{0, 0}, InFlightTensor{kMaxLocalTensors - 1, 0},
                                    InFlightTensor{7, (std::uint64_t{1} << 47) - 1}}) {
    CHECK(said.ToWord() != 0);
    CHECK(InFlightTensor::FromWord(said.ToWord()).tensor == said.tensor);
    CHECK(InFlightTensor::FromWord(said.ToWord()).occurrence == said.occurrence);
  }
}

TEST_CASE("InFlightIndex: shows what is in flight, and nothing of it once it has ended") {
  const Segment segment;
  InFlightIndex index(segment.view, 1);
  const std::uint32_t a = index.Begin({5, 0});
  const std::uint32_t b = index.Begin({9, 3});
  CHECK(segment.Words(1) ==
        std::vector<std::uint64_t>{InFlightTensor{5, 0}.ToWord(), InFlightTensor{9, 3}.ToWord()});
  CHECK(segment.Words(0).empty());
  index.Move(a, {5, 1});
  index.End(b);
  CHECK(segment.Words(1) == std::vector<std::uint64_t>{InFlightTensor{5, 1}.ToWord()});
}

TEST_CASE("InFlightIndex: uses as many places as were in flight at once, whatever came in all") {
  const Segment segment;
  InFlightIndex index(segment.view, 0);
  for (std::uint32_t t = 0; t + 1 < 1000; t += 2) {
    const std::uint32_t first = index.Begin({t, 0});
    const std::uint32_t second = index.Begin({t + 1, 0});
    index.End(first);
    index.End(second);
  }
  CHECK(segment.view.Member(0).in_flight_places == 2);
  CHECK(segment.Words(0).empty());
}

}  // namespace
}  // namespace ringd
