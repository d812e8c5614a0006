// What happened to an operation at a moment: a record of 32 bytes, in a ring that overwrites
// (trace_ring.h).
//
// Each event says of which communicator it is (TracedPart). Which operation there is meant depends
// on who writes. ringd's engine names an operation by its OperationId (channel, sequence), and
// before it has one, a submission by member, submission number and tensor. The ranks of a
// communicator on one node, where ringd only looks on, name it by tensor and occurrence.
#ifndef RINGD_PROTO_TRACE_TRACE_EVENT_H_
#define RINGD_PROTO_TRACE_TRACE_EVENT_H_

#include <compare>
#include <cstdint>
#include <type_traits>

namespace ringd {

// The numbers are part of the protocol. Above each: who writes it, and what `sequence` and `value`
// are.
enum class TraceStage : std::uint8_t {
  kNone = 0,
  // Engine: submission number, bytes. Trainer, of a communicator on one node: occurrence, bytes.
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
  // Engine, operation; trainer, of a communicator on one node: occurrence. value: bytes; detail: a
  // status code.
  kCompleted = 11,
  // Engine: `tensor` ended without an operation. detail: a status code.
  kFailed = 12,
  // Trainer, of a communicator on one node: occurrence; a chunk of it. value: duration in ns.
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
// On one node the ranks' numbers for names are below, and those from here on are of tensors in
// device memory.
inline constexpr std::uint32_t kFirstTracedDeviceTensor = std::uint32_t{1} << 31;

// Operations that are matched by order have a tensor's number each, from here up to the former: 30
// bits of their own number.
inline constexpr std::uint32_t kFirstTracedOrdered = std::uint32_t{1} << 30;

constexpr std::uint32_t TracedOrdered(std::uint64_t number) noexcept {
  return kFirstTracedOrdered | (static_cast<std::uint32_t>(number) & (kFirstTracedOrdered - 1));
}
constexpr bool IsTracedOrdered(std::uint32_t tensor) noexcept {
  return tensor >= kFirstTracedOrdered && tensor < kFirstTracedDeviceTensor;
}

// A communicator of the job, as events name it: in the upper 12 bits of TraceEvent::channel, beside
// the channel there.
class TracedPart {
 public:
  static constexpr std::uint32_t kMost = (1U << 12) - 1;

  // That of all ranks.
  constexpr TracedPart() noexcept = default;
  // By its number in the job. That grows for ever: two that are 4,095 apart look alike.
  constexpr explicit TracedPart(std::uint32_t communicator) noexcept
      : number_(communicator == 0 ? 0 : 1 + (communicator - 1) % kMost) {}
  static constexpr TracedPart OfWord(std::uint32_t word) noexcept {
    return OfNumber(word >> kChannelBits);
  }
  // What number() gives.
  static constexpr TracedPart OfNumber(std::uint32_t number) noexcept {
    TracedPart part;
    part.number_ = number;
    return part;
  }

  constexpr std::uint32_t number() const noexcept { return number_; }
  constexpr bool is_all_ranks() const noexcept { return number_ == 0; }
  constexpr std::uint32_t WordOf(std::uint32_t channel) const noexcept {
    return number_ << kChannelBits | (channel & kChannelMask);
  }
  static constexpr std::uint32_t ChannelOf(std::uint32_t word) noexcept {
    return word & kChannelMask;
  }

  friend constexpr auto operator<=>(const TracedPart&, const TracedPart&) = default;

 private:
  static constexpr int kChannelBits = 20;
  static constexpr std::uint32_t kChannelMask = (1U << kChannelBits) - 1;

  std::uint32_t number_ = 0;
};

struct TraceEvent {
  std::uint64_t at_ns = 0;  // Clock (CLOCK_MONOTONIC) of the node
  std::uint64_t value = 0;
  std::uint32_t channel = 0;  // TracedPart::WordOf
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
