// Whether it is this engine's turn on a line that other engine processes want, too.
#ifndef RINGD_BACKENDS_TCP_LINE_TURN_H_
#define RINGD_BACKENDS_TCP_LINE_TURN_H_

#include <array>
#include <bitset>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "backends/collectives/message.h"
#include "proto/base/clock.h"
#include "proto/shm/line_shares.h"

namespace ringd {

// Start-time fair queueing (backends/collectives/fair_turns.h) between processes, with nobody who
// chooses: each engine says in the segment of tags whether it wants the line, and its start tag. It
// goes on while its tag is no more than one of its frames ahead of the least tag of those that want
// the line now; the one with the least tag always may. So engines that always want it get bytes in
// proportion to their weights, and who is alone gets everything.
//
// Who begins to want the line begins where the others are: nobody saves up or owes for later. The
// same is set right at each look, since others' tags are hints.
//
// An engine that keeps this one from sending for kPatience without having sent anything itself is
// stuck, stopped or dead: it is passed over until its tag changes.
//
// Thread safety: the progress thread only.
// Ownership: borrows both segments.
class LineTurn {
 public:
  // What an engine that has stopped may cost the others, once. Longer than a slow line takes until
  // a socket has room for the next frame: with 50 ms lines of 50 Mbit/s were not shared by weight.
  static constexpr std::chrono::milliseconds kPatience{200};

  // Requirements: slot < kMostEngines, line < kMostLines.
  LineTurn(const LineRosterSegment& roster, LineTagsSegment& tags, std::size_t slot,
           std::size_t line) noexcept
      : roster_(roster), wanting_(tags.wanting[line].set), tags_(tags.tags[line]), slot_(slot) {}
  LineTurn(const LineTurn&) = delete;
  LineTurn& operator=(const LineTurn&) = delete;

  // Another engine wants the line now.
  bool OthersWant() const noexcept {
    return SlotSet::HaveOthers(wanting_, roster_.engines.set, slot_);
  }

  // This engine has something to send on it; has nothing any more. Each user of the line says so
  // once, first one, then the other.
  void Begin() noexcept;
  void End() noexcept;

  // This engine may send a frame. Requirement: Begin() was called, and not End() since.
  bool IsOwn(Clock::time_point now) noexcept;
  // It sends a frame of so many bytes. If nobody else wants the line there is no need to say so.
  void Charge(std::size_t bytes) noexcept;

  // What of the line is this engine's, by the weights of those that wanted it at the last look:
  // over 0, up to 1.
  double part() const noexcept { return part_; }
  // Has grown since the last look that said no if those that were in the way have gone on.
  std::uint32_t moves() const noexcept { return moves_; }

 private:
  static constexpr std::uint64_t kFrameTag = std::uint64_t{kMaxPayloadBytes} << kLineTagBits;

  static std::int64_t Lead(std::uint64_t tag, std::uint64_t other) noexcept {
    return static_cast<std::int64_t>(tag - other);
  }
  std::uint64_t WeightOf(std::size_t slot) const noexcept;
  std::uint64_t own_frame() const noexcept { return kFrameTag / WeightOf(slot_); }
  void Publish() noexcept;
  // Whether the slot, whose tag is in the way, has had its time.
  bool IsStuck(std::size_t slot, std::uint64_t tag, Clock::time_point now) noexcept;

  const LineRosterSegment& roster_;
  SlotSet& wanting_;
  LineTagsSegment::Tags& tags_;
  const std::size_t slot_;
  std::size_t users_ = 0;  // that want it
  std::uint64_t tag_ = 0;
  double part_ = 1;
  std::uint32_t moves_ = 0;

  // Those that were in the way at the last look: with which tag, and since when.
  std::bitset<kMostEngines> in_the_way_;
  std::array<std::uint64_t, kMostEngines> seen_tags_{};
  std::array<Clock::time_point, kMostEngines> seen_since_{};
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_TCP_LINE_TURN_H_
