#include "proto/trace/trace_event.h"

#include <catch2/catch.hpp>
#include <cstdint>

namespace ringd {
namespace {

TEST_CASE("TracedPart: stands beside the channel, and 0 is that of all ranks") {
  for (const std::uint32_t communicator : {0U, 1U, 1024U, 4095U, 4096U, 1'000'000U, UINT32_MAX}) {
    const TracedPart part(communicator);
    CHECK(part.is_all_ranks() == (communicator == 0));
    for (const std::uint32_t channel : {0U, 1U, (1U << 20) - 1}) {
      CHECK(TracedPart::OfWord(part.WordOf(channel)) == part);
      CHECK(TracedPart::ChannelOf(part.WordOf(channel)) == channel);
    }
    CHECK(TracedPart::OfNumber(part.number()) == part);
  }
  CHECK(TracedPart(1).WordOf(UINT32_MAX) == TracedPart(1).WordOf((1U << 20) - 1));
  CHECK(TracedPart(4095) != TracedPart(1));
  CHECK(TracedPart(4096) == TracedPart(1));
  CHECK(TracedPart().WordOf(7) == 7);
}

TEST_CASE("TracedOrdered: a number's tensor is none of a name, nor one in device memory") {
  for (const std::uint64_t number : {std::uint64_t{0}, (std::uint64_t{1} << 30) - 1, UINT64_MAX}) {
    CHECK(IsTracedOrdered(TracedOrdered(number)));
  }
  CHECK(TracedOrdered(17) - kFirstTracedOrdered == 17);
  CHECK_FALSE(IsTracedOrdered(0));
  CHECK_FALSE(IsTracedOrdered(kFirstTracedDeviceTensor));
  CHECK_FALSE(IsTracedOrdered(kNoTracedTensor));
}

}  // namespace
}  // namespace ringd
