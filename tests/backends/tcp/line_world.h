// The two segments by which engines share lines, as the supervisor makes them, in this process.
#ifndef RINGD_TESTS_BACKENDS_TCP_LINE_WORLD_H_
#define RINGD_TESTS_BACKENDS_TCP_LINE_WORLD_H_

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "backends/tcp/line_shares.h"
#include "proto/base/memfd.h"
#include "proto/shm/line_shares.h"

namespace ringd {

struct LineWorld {
  LineWorld() {
    auto published = CreatePublishedMemfd("roster", sizeof(LineRosterSegment));
    REQUIRE(published.ok());
    roster_memory = *std::move(published);
    auto made = CreateSealedMemfd("tags", sizeof(LineTagsSegment));
    REQUIRE(made.ok());
    tags_fd = *std::move(made);
    auto mapped = MemoryMapping::MapSealed(tags_fd.get(), sizeof(LineTagsSegment));
    REQUIRE(mapped.ok());
    tags_mapping = *std::move(mapped);
    roster().magic = kLineRosterMagic;
    roster().version = kLineSharesVersion;
  }

  LineRosterSegment& roster() {
    return *reinterpret_cast<LineRosterSegment*>(roster_memory.mapping.data());
  }
  LineTagsSegment& tags() { return *reinterpret_cast<LineTagsSegment*>(tags_mapping.data()); }

  void AddEngine(std::size_t slot, std::uint32_t weight) {
    roster().weights[slot] = weight;
    roster().engines.set.Add(slot);
  }
  std::unique_ptr<LineShares> Shares(std::size_t slot) {
    auto shares = LineShares::Open(roster_memory.fd.get(), tags_fd.get(), slot);
    REQUIRE(shares.ok());
    return *std::move(shares);
  }

  PublishedMemory roster_memory;
  UniqueFd tags_fd;
  MemoryMapping tags_mapping;
};

}  // namespace ringd

#endif  // RINGD_TESTS_BACKENDS_TCP_LINE_WORLD_H_
