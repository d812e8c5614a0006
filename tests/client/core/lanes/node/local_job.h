// The ranks of a one-node job, as parts of one test: each with its own end of one job segment.
#ifndef RINGD_TESTS_CLIENT_CORE_LANES_NODE_LOCAL_JOB_H_
#define RINGD_TESTS_CLIENT_CORE_LANES_NODE_LOCAL_JOB_H_

#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/core/lanes/node/local_operations.h"
#include "client/core/lanes/node/processor_watch.h"
#include "client/core/tensors/arena.h"
#include "client/core/tensors/registrations.h"
#include "client/core/tensors/staging.h"
#include "proto/base/memfd.h"

namespace ringd::client {

inline constexpr std::uint32_t kCapacity = 64;
inline constexpr std::uint64_t kArenaBytes = 8 << 20;

// What can't be read leaves a helper on.
inline ProcessorWatch AlwaysRoom() {
  return ProcessorWatch(1, [] { return std::nullopt; });
}

inline Clock::time_point InTenSeconds() { return Clock::now() + std::chrono::seconds(10); }

// One rank's process, as far as its operations go.
struct Member {
  Member(MemoryMapping mapping, std::chrono::nanoseconds spin)
      : allocator(std::move(mapping)),
        arena(allocator.AtOffset(0)),
        staging(allocator, nullptr),
        memory(arena, kArenaBytes, &arenas),
        spin_budget(spin) {}

  void Start(DirectReading reading, bool puts_off = false) {
    REQUIRE(memory.Await(InTenSeconds()).ok());
    operations = std::make_unique<LocalOperations>(memory, kCapacity, state, spin_budget, reading,
                                                   puts_off ? &staging : nullptr,
                                                   TracePlace{&sink, part, by_order});
  }

  TraceRingView TraceRing() { return ViewTraceRing(trace_memory, kTraceCapacity); }
  std::vector<TraceEvent> Traced() {
    std::vector<TraceEvent> events;
    TraceReader(TraceRing()).Read(0, kTraceCapacity, events);
    return events;
  }

  float* At(std::uint64_t offset) const { return reinterpret_cast<float*>(arena + offset); }

  static constexpr std::uint32_t kTraceCapacity = 64;
  alignas(kCacheLineBytes) std::byte trace_memory[TraceRingBytes(kTraceCapacity)] = {};
  TraceSink sink{TraceRing()};
  // How the communicator is traced, from Start on.
  TracedPart part;
  bool by_order = false;
  // Tests that place tensors by hand and tests that let `staging` do it don't mix.
  Arena allocator;
  std::byte* arena;
  Registrations registrations;
  Staging staging;
  ArenaMappings arenas;
  JobMemory memory;
  SessionState state;
  std::chrono::nanoseconds spin_budget;
  std::unique_ptr<LocalOperations> operations;
};

// A job of `count` members, whose ranks are 10, 11, ... Without `start`, each one's Start is to be
// called, in whichever process is to be that member.
struct LocalJob {
  explicit LocalJob(std::uint32_t count,
                    std::chrono::nanoseconds spin = std::chrono::nanoseconds(0),
                    bool start = true) {
    const std::uint64_t bytes = JobSegmentView::SegmentBytes(count);
    const UniqueFd segment = Memory(bytes);
    auto mapped = MemoryMapping::Map(segment.get(), bytes);
    REQUIRE(mapped.ok());
    std::vector<std::int32_t> ranks;
    for (std::uint32_t m = 0; m < count; ++m) ranks.push_back(static_cast<std::int32_t>(10 + m));
    InitializeJobSegment(mapped->data(), ranks);
    std::vector<UniqueFd> arenas;
    for (std::uint32_t m = 0; m < count; ++m) {
      arenas.push_back(Memory(kArenaBytes));
      auto own = MemoryMapping::Map(arenas.back().get(), kArenaBytes);
      REQUIRE(own.ok());
      members.push_back(std::make_unique<Member>(*std::move(own), spin));
    }
    for (std::uint32_t m = 0; m < count; ++m) {
      members[m]->memory.AddSegment({bytes, count, m, 0, 0}, segment);
      for (std::uint32_t other = 0; other < count; ++other) {
        if (other != m) members[m]->memory.AddArena({kArenaBytes, other, 0}, arenas[other]);
      }
      if (start) members[m]->Start(DirectReading::kIfAllowed);
    }
  }

  static UniqueFd Memory(std::uint64_t bytes) {
    auto fd = CreateSealedMemfd("local-operations-test", bytes);
    REQUIRE(fd.ok());
    return *std::move(fd);
  }

  Member& operator[](std::size_t m) { return *members[m]; }

  std::vector<std::unique_ptr<Member>> members;
};

// A tensor as every member registers it; `meta` stands for all but the name.
struct Floats {
  Floats(std::uint32_t tensor, std::uint32_t meta, std::uint64_t count) {
    registration.description.name = "t" + std::to_string(tensor);
    registration.description.element_count = count;
    registration.description.shape = {static_cast<std::int64_t>(count)};
    registration.numbers = {0, tensor, meta};
    registration.bytes = count * sizeof(float);
    registration.element_count = count;
    registration.element_bytes = sizeof(float);
  }
  Registration registration;
};

inline std::uint64_t Submit(Member& member, Registration& registration, float* data) {
  std::uint64_t sequence = 0;
  if (LocalOperations::IsInline(registration)) {
    REQUIRE(member.operations->SubmitInline(registration, data, data, sequence) ==
            SubmitResult::kOk);
    return sequence;
  }
  Submission record{};
  record.source_offset = record.destination_offset =
      static_cast<std::uint64_t>(reinterpret_cast<std::byte*>(data) - member.arena);
  OperationEnd end;
  end.registration = &registration;
  REQUIRE(member.operations->TrySubmit(record, end) == SubmitResult::kOk);
  return record.sequence;
}

// Without assertions, for threads and children: Catch's are for the test's own thread. Whether the
// operation has been taken out, and `outcome` says how it ended.
inline bool TryFinish(Member& member, std::uint64_t sequence, OperationOutcome& outcome) {
  OperationEnd end;
  if (member.operations->Wait(sequence, InTenSeconds()) != WaitResult::kDone ||
      !member.operations->Consume(sequence, outcome, end) || !outcome.completed) {
    return false;
  }
  member.staging.Finish(end, outcome.status == 0);
  return true;
}

inline OperationOutcome Finish(Member& member, std::uint64_t sequence) {
  OperationOutcome outcome;
  REQUIRE(TryFinish(member, sequence, outcome));
  return outcome;
}

// A tensor anywhere: through `staging`, as a context submits. Without assertions.
inline bool TrySubmitAnywhere(Member& member, Registration& registration, const void* source,
                              void* destination, std::uint64_t& sequence) {
  Submission record{};
  OperationEnd end;
  const bool submitted = member.staging
                             .Place(registration, source, destination, record, end,
                                    member.operations->DirectUseOf(registration))
                             .ok() &&
                         member.operations->TrySubmit(record, end) == SubmitResult::kOk;
  sequence = record.sequence;
  return submitted;
}

inline std::uint64_t SubmitAnywhere(Member& member, Registration& registration, const void* source,
                                    void* destination) {
  std::uint64_t sequence = 0;
  REQUIRE(TrySubmitAnywhere(member, registration, source, destination, sequence));
  return sequence;
}

}  // namespace ringd::client

#endif  // RINGD_TESTS_CLIENT_CORE_LANES_NODE_LOCAL_JOB_H_
