// What comes for communicators that do not exist takes bounded memory, whatever it is.
#include "backends/collectives/orphan_messages.h"

#include <malloc.h>

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ringd {
namespace {

// The memory that this process has from malloc.
std::size_t AllocatedBytes() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

WireKey KeyOf(std::uint64_t wire_id) { return {.wire_id = wire_id, .node = 0}; }

// Messages of `payload_bytes`, as many as may be held at once and half as many again, for
// communicators that get a thousand each.
void Flood(OrphanMessages& orphans, std::size_t payload_bytes) {
  const std::vector<std::byte> payload(payload_bytes);
  for (std::size_t i = 0; i < OrphanMessages::kMaxMessages * 3 / 2; ++i) {
    orphans.Hold(KeyOf(i / 1000), MessageHeader{}, payload);
  }
}

TEST_CASE("OrphanMessages: a flood takes no more memory than the bound, and leaves little") {
  // One byte more than fits a block is what wastes most.
  const std::size_t payload_bytes = GENERATE(0, 1, 257, 2049, 16385, std::size_t{kMaxPayloadBytes});
  CAPTURE(payload_bytes);
  const std::size_t before = AllocatedBytes();
  {
    EarlyMessagePool pool;
    OrphanMessages orphans(pool);
    Flood(orphans, payload_bytes);
    const std::size_t held = AllocatedBytes() - before;
    CHECK(orphans.taken_bytes() <= OrphanMessages::kMaxBytes);
    // The count is the truth: but for the tables of communicators, and a page for each of the
    // largest blocks.
    CHECK(held <= OrphanMessages::kMaxBytes * 21 / 20 + EarlyMessagePool::kMaxSpareBytes);
    CHECK(orphans.taken_bytes() + pool.spare_bytes() >= held * 9 / 10);
    for (std::uint64_t id = 0; id < 1000; ++id) orphans.Retire(KeyOf(id));
    CHECK(orphans.taken_bytes() == 0);
    CHECK(AllocatedBytes() - before <= EarlyMessagePool::kMaxSpareBytes * 11 / 10);
  }
  CHECK(AllocatedBytes() <= before + 64 * 1024);
}

TEST_CASE("OrphanMessages: tiny messages take little each, and their number is bounded") {
  EarlyMessagePool pool;
  OrphanMessages orphans(pool);
  Flood(orphans, 1);
  CHECK(orphans.taken_bytes() <= OrphanMessages::kMaxMessages * 512);
  EarlyMessageList messages;
  // The last communicator's are there, the first one's were dropped.
  CHECK(orphans.Take(KeyOf(OrphanMessages::kMaxMessages * 3 / 2 / 1000), messages));
  CHECK_FALSE(messages.empty());
  messages.Clear(pool);
  CHECK_FALSE(orphans.Take(KeyOf(0), messages));
}

TEST_CASE("OrphanMessages: what one communicator is sent beyond the bound costs it all of it") {
  EarlyMessagePool pool;
  OrphanMessages orphans(pool);
  const std::vector<std::byte> payload(kMaxPayloadBytes);
  for (std::size_t bytes = 0; bytes <= OrphanMessages::kMaxBytes; bytes += payload.size()) {
    orphans.Hold(KeyOf(1), MessageHeader{}, payload);
  }
  CHECK(orphans.taken_bytes() == 0);
  EarlyMessageList messages;
  CHECK_FALSE(orphans.Take(KeyOf(1), messages));
}

TEST_CASE("OrphanMessages: they come out as they went in, in their order") {
  EarlyMessagePool pool;
  OrphanMessages orphans(pool);
  const std::size_t sizes[] = {0, 256, 257, 2048, 2049, 16384, 16385, kMaxPayloadBytes};
  for (int round = 0; round < 2; ++round) {
    for (const std::size_t size : sizes) {
      const std::vector<std::byte> payload(size, static_cast<std::byte>(size % 251));
      MessageHeader header;
      header.index = static_cast<std::uint32_t>(size);
      orphans.Hold(KeyOf(5), header, payload);
    }
    EarlyMessageList messages;
    REQUIRE(orphans.Take(KeyOf(5), messages));
    CHECK(orphans.taken_bytes() == 0);
    for (const std::size_t size : sizes) {
      EarlyMessage* const message = messages.PopFront();
      REQUIRE(message != nullptr);
      CHECK(message->header.index == size);
      CHECK(message->payload().size() == size);
      CHECK((size == 0 || message->payload().back() == static_cast<std::byte>(size % 251)));
      pool.GiveBack(message);
    }
    CHECK(messages.empty());
    CHECK(messages.taken_bytes() == 0);
  }
}

}  // namespace
}  // namespace ringd
