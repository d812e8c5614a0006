// Tensors that are copied while they are reduced: with a thread of the test as ringd. Runs under
// ThreadSanitizer too.
#include "client/core/tensors/staged_copies.h"

#include <sys/eventfd.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdint>
#include <set>
#include <thread>
#include <vector>

#include "client/core/attach/session_state.h"
#include "client/core/lanes/wire/ringd_operations.h"
#include "client/core/tensors/arena.h"
#include "client/core/tensors/registrations.h"
#include "client/core/tensors/staging.h"
#include "proto/base/memfd.h"
#include "proto/base/memory_mapping.h"

namespace ringd::client {
namespace {

constexpr std::uint32_t kCapacity = 16;
constexpr std::uint64_t kBytes = std::uint64_t{2} << 20;
constexpr std::uint64_t kPieces = kBytes / kLeastStagingPieceBytes;
constexpr std::uint64_t kAll = (std::uint64_t{1} << kPieces) - 1;

Clock::time_point InTenSeconds() { return Clock::now() + std::chrono::seconds(10); }

MemoryMapping Map(std::uint64_t bytes) {
  auto fd = CreateSealedMemfd("staged-copies-test", bytes);
  REQUIRE(fd.ok());
  auto mapped = MemoryMapping::Map(fd->get(), bytes);
  REQUIRE(mapped.ok());
  return *std::move(mapped);
}

// A context's parts for one tensor of bytes, and ringd's end of the segment.
struct Fixture {
  explicit Fixture(CollectiveKind kind = CollectiveKind::kAllReduce)
      : layout{kCapacity, 2 * kCapacity},
        segment(Map(layout.segment_bytes())),
        view((InitializeSessionSegment(segment.data(), layout, 1, 0),
              ViewSessionSegment(segment.data(), layout))),
        submissions(view.submission_cursors, view.submissions, kCapacity),
        completions(view.completion_cursors, view.completions, 2 * kCapacity),
        arena(Map(8 * kBytes)),
        copies(view),
        staging(arena, &copies),
        operations(view, kCapacity, 2 * kCapacity, UniqueFd(::eventfd(0, EFD_NONBLOCK)), state,
                   copies, std::chrono::nanoseconds(0)) {
    TensorDescription description;
    description.name = "t";
    description.kind = kind;
    description.shape = {static_cast<std::int64_t>(kBytes)};
    description.data_type = DataType::kUint8;
    description.element_count = kBytes;
    registration = registrations.Find(registrations.Add(description, {1}, 0));
    REQUIRE(registration->bytes == kBytes);
  }

  Submission Submit(const void* source, void* destination) {
    Submission record{};
    OperationEnd end;
    REQUIRE(staging.Place(*registration, source, destination, record, end, {.in_pieces = in_pieces})
                .ok());
    REQUIRE(operations.TrySubmit(record, end) == SubmitResult::kOk);
    if (end.staged_from != nullptr) operations.CopySource(end);
    Submission seen{};
    REQUIRE(submissions.TryPop(seen) == RingResult::kOk);
    return seen;
  }
  void Finish(std::uint64_t sequence) {
    OperationOutcome outcome;
    OperationEnd end;
    REQUIRE(operations.Wait(sequence, InTenSeconds()) == WaitResult::kDone);
    REQUIRE(operations.Consume(sequence, outcome, end));
    staging.Finish(end, outcome.status == 0);
  }
  void Complete(std::uint64_t sequence) {
    CompletionRecord record{};
    record.sequence = sequence;
    record.error_slot = kErrorTextSlots;
    REQUIRE(completions.TryPush(record) == RingResult::kOk);
    view.header->completions.Ring();
  }
  // The arena's piece becomes `value`, and is told.
  void Make(const Submission& record, std::uint64_t piece, unsigned char value) {
    std::memset(arena.AtOffset(record.destination_offset) + piece * kLeastStagingPieceBytes, value,
                kLeastStagingPieceBytes);
    view.staging_progress[record.progress].result.fetch_or(std::uint64_t{1} << piece);
    view.header->completions.Ring();
  }

  SessionSegmentLayout layout;
  MemoryMapping segment;
  SessionSegmentView view;
  RingConsumer<Submission> submissions;
  RingProducer<CompletionRecord> completions;
  SessionState state;
  Arena arena;
  Registrations registrations;
  StagedCopies copies;
  Staging staging;
  RingdOperations operations;
  Registration* registration = nullptr;
  bool in_pieces = true;
};

using Order = std::array<std::uint8_t, kMaxStagingPieces>;

TEST_CASE("StagedCopies: every piece comes once, of any size and anywhere in a ring") {
  Order order;
  for (const std::uint64_t bytes : {std::uint64_t{1}, kBytes, kBytes + 1, kBytes * 1000}) {
    for (std::uint32_t nodes = 0; nodes < 200; nodes = nodes * 3 / 2 + 1) {
      for (const std::uint32_t self : {0U, nodes / 2, nodes, nodes + 7}) {
        INFO(bytes << " bytes, node " << self << " of " << nodes);
        const auto pieces = StagedCopies::OrderPieces(bytes, {self, nodes}, order);
        const std::set<int> all(pieces.begin(), pieces.end());
        REQUIRE(all.size() == pieces.size());
        REQUIRE(*all.rbegin() + 1 == static_cast<int>(all.size()));
        REQUIRE(all.size() == static_cast<std::size_t>(std::popcount(AllStagingPieces(bytes))));
      }
    }
  }
}

TEST_CASE(
    "StagedCopies: the own block and the one that comes first take turns, then the others come") {
  Order order;
  const auto ordered = [&](RingPosition position) {
    const auto pieces = StagedCopies::OrderPieces(kBytes, position, order);
    return std::vector<int>(pieces.begin(), pieces.end());
  };
  CHECK(ordered({1, 4}) == std::vector<int>{4, 0, 5, 1, 6, 2, 7, 3, 12, 13, 14, 15, 8, 9, 10, 11});
  CHECK(ordered({0, 2}) == std::vector<int>{0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15});
  const std::vector<int> ascending = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  CHECK(ordered({0, 0}) == ascending);
  CHECK(ordered({0, 1}) == ascending);
}

TEST_CASE("StagedCopies: a broadcast's source is copied from the front, wherever the node is") {
  const auto order_of = [](CollectiveKind kind) {
    Fixture fixture(kind);
    fixture.view.header->ring_position = RingPosition{1, 4};
    const std::vector<unsigned char> source(kBytes, 3);
    std::vector<unsigned char> result(kBytes, 0);
    Submission record{};
    OperationEnd end;
    REQUIRE(fixture.staging
                .Place(*fixture.registration, source.data(), result.data(), record, end,
                       {.in_pieces = true})
                .ok());
    std::vector<int> order;
    std::uint64_t before = 0;
    fixture.copies.CopyIn(end, [&] {
      const std::uint64_t now = fixture.view.staging_progress[record.progress].source;
      order.push_back(std::countr_zero(now & ~before));
      before = now;
    });
    CHECK(before == kAll);
    return order;
  };
  CHECK(order_of(CollectiveKind::kBroadcast).front() == 0);
  CHECK(std::ranges::is_sorted(order_of(CollectiveKind::kBroadcast)));
  CHECK(order_of(CollectiveKind::kAllReduce).front() == 4);
}

TEST_CASE("StagedCopies: a source is copied after the submission, a result out as it comes") {
  Fixture fixture;
  const std::vector<unsigned char> source(kBytes, 3);
  std::vector<unsigned char> result(kBytes, 0);
  const Submission seen = fixture.Submit(source.data(), result.data());
  CHECK(seen.flags == (kSourceInPieces | kResultInPieces));
  CHECK(fixture.view.staging_progress[seen.progress].source == kAll);
  CHECK(fixture.view.header->staged_pieces == kPieces);
  CHECK(std::memcmp(fixture.arena.AtOffset(seen.source_offset), source.data(), kBytes) == 0);

  fixture.Make(seen, 2, 7);
  CHECK(fixture.operations.Wait(0, Clock::now()) == WaitResult::kTimeout);
  CHECK(result[2 * kLeastStagingPieceBytes] == 7);
  CHECK(result[3 * kLeastStagingPieceBytes - 1] == 7);
  CHECK(result[3 * kLeastStagingPieceBytes] == 0);
  // What was copied out once is the caller's.
  result[2 * kLeastStagingPieceBytes] = 9;
  for (std::uint64_t piece = 0; piece < kPieces; ++piece) {
    if (piece != 2) fixture.Make(seen, piece, 8);
  }
  fixture.Complete(0);
  fixture.Finish(0);
  CHECK(result[0] == 8);
  CHECK(result[2 * kLeastStagingPieceBytes] == 9);
  CHECK(result[kBytes - 1] == 8);
}

TEST_CASE("StagedCopies: pieces that nobody told of are copied out at the end") {
  Fixture fixture;
  std::vector<unsigned char> data(kBytes, 3);
  const Submission seen = fixture.Submit(data.data(), data.data());
  std::memset(fixture.arena.AtOffset(seen.destination_offset), 5, kBytes);
  fixture.Complete(0);
  fixture.Finish(0);
  CHECK(data == std::vector<unsigned char>(kBytes, 5));
}

TEST_CASE("StagedCopies: only what is large and outside of the arena is copied in pieces") {
  Fixture fixture;
  std::vector<unsigned char> outside(kBytes, 3);
  auto* inside = static_cast<unsigned char*>(*fixture.arena.AllocateZeroed(kBytes));
  CHECK(fixture.Submit(inside, inside).flags == 0);
  // Each alone, and the records come back.
  for (std::uint32_t i = 0; i < 2 * kStagingProgressCount; ++i) {
    const bool out = i % 2 == 0;
    const Submission seen =
        out ? fixture.Submit(inside, outside.data()) : fixture.Submit(outside.data(), inside);
    CHECK((seen.flags & (kSourceInPieces | kResultInPieces)) ==
          (out ? kResultInPieces : kSourceInPieces));
    fixture.Complete(seen.sequence);
    fixture.Finish(seen.sequence);
  }
  fixture.in_pieces = false;
  CHECK((fixture.Submit(outside.data(), outside.data()).flags & kSourceInPieces) == 0);
}

TEST_CASE("StagedCopies: with all records taken, tensors are copied as a whole") {
  Fixture fixture;
  std::set<std::uint32_t> records;
  for (std::uint32_t i = 0; i < kStagingProgressCount; ++i) {
    records.insert(fixture.copies.TakeRecord());
  }
  CHECK(records.size() == kStagingProgressCount);
  CHECK(fixture.copies.TakeRecord() == kNoProgress);
  std::vector<unsigned char> data(kBytes, 3);
  CHECK(fixture.Submit(data.data(), data.data()).flags == 0);
  fixture.copies.GiveBackRecord(77);
  CHECK(fixture.copies.TakeRecord() == 77);
}

TEST_CASE("StagedCopies: two threads wait for one operation, and one of them takes it out") {
  for (int round = 0; round < 50; ++round) {
    Fixture fixture;
    std::vector<unsigned char> data(kBytes, 3);
    const Submission seen = fixture.Submit(data.data(), data.data());
    std::atomic<int> taken{0};
    const auto wait = [&] {
      if (fixture.operations.Wait(0, InTenSeconds()) != WaitResult::kDone) return;
      OperationOutcome outcome;
      OperationEnd end;
      if (!fixture.operations.Consume(0, outcome, end)) return;
      fixture.staging.Finish(end, outcome.status == 0);
      // From here on the memory is the caller's: nobody may write to it any more.
      for (unsigned char& value : data) value = static_cast<unsigned char>(value + 1);
      ++taken;
    };
    std::thread first(wait);
    std::thread second(wait);
    for (std::uint64_t piece = 0; piece < kPieces; ++piece) fixture.Make(seen, piece, 5);
    fixture.Complete(0);
    first.join();
    second.join();
    CHECK(taken == 1);
    REQUIRE(data == std::vector<unsigned char>(kBytes, 6));
  }
}

}  // namespace
}  // namespace ringd::client
