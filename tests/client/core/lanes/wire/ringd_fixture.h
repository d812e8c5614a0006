// Operations in a ring, without gRPC or sockets: the test is the engine.
#ifndef RINGD_TESTS_CLIENT_CORE_LANES_WIRE_RINGD_FIXTURE_H_
#define RINGD_TESTS_CLIENT_CORE_LANES_WIRE_RINGD_FIXTURE_H_

#include <sys/eventfd.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <utility>

#include "client/core/lanes/wire/ringd_operations.h"
#include "proto/base/memfd.h"
#include "proto/base/memory_mapping.h"

namespace ringd::client {

inline constexpr std::uint32_t kCapacity = 16;

inline Clock::time_point InTenSeconds() { return Clock::now() + std::chrono::seconds(10); }

// A segment, and the engine's end of it.
struct Segment {
  Segment() : layout{kCapacity, 2 * kCapacity} {
    auto fd = CreateSealedMemfd("operations-test", layout.segment_bytes());
    REQUIRE(fd.ok());
    auto mapped = MemoryMapping::Map(fd->get(), layout.segment_bytes());
    REQUIRE(mapped.ok());
    mapping = *std::move(mapped);
    InitializeSessionSegment(mapping.data(), layout, 1, 0);
    view = ViewSessionSegment(mapping.data(), layout);
    submissions = {view.submission_cursors, view.submissions, kCapacity};
    completions = {view.completion_cursors, view.completions, 2 * kCapacity};
    wakeup = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  }

  void Complete(std::uint64_t sequence, std::int32_t status = 0) {
    CompletionRecord record{};
    record.sequence = sequence;
    record.status = status;
    record.error_slot = kErrorTextSlots;
    REQUIRE(completions.TryPush(record) == RingResult::kOk);
    view.header->completions.Ring();
  }

  UniqueFd ClientWakeup() const { return UniqueFd(::dup(wakeup.get())); }

  SessionSegmentLayout layout;
  MemoryMapping mapping;
  SessionSegmentView view;
  RingConsumer<Submission> submissions;
  RingProducer<CompletionRecord> completions;
  UniqueFd wakeup;
};

struct Fixture {
  explicit Fixture(std::chrono::nanoseconds spin = std::chrono::nanoseconds(0))
      : copies(segment.view),
        operations(segment.view, kCapacity, 2 * kCapacity, segment.ClientWakeup(), state, copies,
                   spin) {}

  std::uint64_t Submit(void* mark = nullptr) {
    Submission record{};
    OperationEnd end;
    end.copy_to = mark;
    REQUIRE(operations.TrySubmit(record, end) == SubmitResult::kOk);
    return record.sequence;
  }

  Segment segment;
  SessionState state;
  StagedCopies copies;
  RingdOperations operations;
};

}  // namespace ringd::client

#endif  // RINGD_TESTS_CLIENT_CORE_LANES_WIRE_RINGD_FIXTURE_H_
