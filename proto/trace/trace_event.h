// What happened to an operation at a moment: a record of 32 bytes, in a ring that overwrites
// (trace_ring.h).
//
// Which operation is meant depends on who writes. ringd's engine names an operation by its
// OperationId (channel, sequence), and before it has one, a submission by member, submission number
// and tensor. The ranks of a one-node job, where ringd only looks on, name it by tensor and
// occurrence.
#ifndef RINGD_PROTO_TRACE_TRACE_EVENT_H_
#define RINGD_PROTO_TRACE_TRACE_EVENT_H_

#include <cstdint>
#include <type_traits>

namespace ringd {

// The numbers are part of the protocol. Above each: who writes it, and what `sequence` and `value`
// are.
enum class TraceStage : std::uint8_t {
  kNone = 0,
  // Engine: submission number, bytes. Trainer, one-node: occurrence, bytes.
  kSubmitted = 1,
  // Engine: all local ranks have submitted `tensor`. value: bytes.
  kReady = 2,
  // Engine, operation: agreed. value: bytes of the bucket; detail: CollectiveKind.
  kStarted = 3,
  // Engine, operation: `tensor` is in it; one for each, behind kStarted. value: bytes.
  kCarries = 4,
  // Engine, operation: handed to the backend.
  kPosted = 5,
  // Engine, operation; these four.
  kFirstSent = 6,
  kLastSent = 7,
  kFirstReceived = 8,
  kLastReceived = 9,
  // Engine, operation: the backend has done with it.
  kMoved = 10,
  // Engine, operation; trainer, one-node: occurrence. value: bytes; detail: a status code.
  kCompleted = 11,
  // Engine: `tensor` ended without an operation. detail: a status code.
  kFailed = 12,
  // Trainer, one-node: occurrence; a chunk of it. value: duration in ns.
  kReduced = 13,
  // Trainer: occurrence, or submission number. value: duration in ns.
  kWaited = 14,
  // Trainer: `tensor` was combined in the rank exchange. value: duration in ns.
  kRankExchange = 15,
  // Engine, operation: it goes no further; another one will carry its tensors.
  kCancelled = 16,
};
inline constexpr int kTraceStageCount = 17;

// `value` is a duration that ends at at_ns.
constexpr bool HasDuration(TraceStage stage) noexcept {
  return stage == TraceStage::kReduced || stage == TraceStage::kWaited ||
         stage == TraceStage::kRankExchange;
}

inline constexpr std::uint32_t kNoTracedTensor = UINT32_MAX;
// In a one-node job the ranks' numbers for names are below, and those from here on are of tensors
// in device memory.
inline constexpr std::uint32_t kFirstTracedDeviceTensor = std::uint32_t{1} << 31;

// Operations that are matched by order have a tensor's number each, from here up to the former: ten
// bits of the communicator's number, twenty of the operation's. Their channels are from the second
// on: 23 bits of the communicator's number, eight of the channel there.
inline constexpr std::uint32_t kFirstTracedOrdered = std::uint32_t{1} << 30;
inline constexpr std::uint32_t kFirstTracedOrderedChannel = std::uint32_t{1} << 31;

struct TraceEvent {
  std::uint64_t at_ns = 0;  // Clock (CLOCK_MONOTONIC) of the node
  std::uint64_t value = 0;
  std::uint32_t channel = 0;
  std::uint32_t sequence = 0;
  std::uint32_t tensor = kNoTracedTensor;  // the communicator's number for its name on this node
  TraceStage stage = TraceStage::kNone;
  std::uint8_t member = 0;   // position among the local ranks, of what one of them does
  std::uint16_t detail = 0;  // by stage
};
static_assert(sizeof(TraceEvent) == 32);
static_assert(std::is_trivially_copyable_v<TraceEvent>);

}  // namespace ringd

#endif  // RINGD_PROTO_TRACE_TRACE_EVENT_H_
