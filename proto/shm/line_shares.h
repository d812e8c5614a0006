// How the engines of a node share the lines to its neighbours: two segments.
//
// The roster says which engines there are and what their jobs weigh. The supervisor makes it and
// alone can write it: its descriptor carries F_SEAL_FUTURE_WRITE. The tags say who wants which line
// now, and how much each engine has had of it. All engines map them for writing.
//
// A line is all that leads to one neighbouring host. It has the number that LineOf() gives; hosts
// of one number share as if they were one.
//
// Trust: engines are processes of different users. An engine can write other engines' tags as well
// as its own, so what stands there is a hint. Whoever reads it bounds what that may cost
// (backends/tcp/line_turn.h, line_gate.h): at worst an engine is left with a quarter of the part
// that its weight is of all weights in the roster.
#ifndef RINGD_PROTO_SHM_LINE_SHARES_H_
#define RINGD_PROTO_SHM_LINE_SHARES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "proto/base/cache_line.h"
#include "proto/shm/engine_slots.h"

namespace ringd {

inline constexpr std::uint64_t kLineRosterMagic = 0x31545352'44474e52;  // "RNGDRST1"
inline constexpr std::uint32_t kLineSharesVersion = 1;                  // of both segments

// Of a node's neighbours few have one number.
inline constexpr std::size_t kMostLines = 1024;

// Tags are in 1/256 byte at weight 1, and may wrap around: only differences count.
inline constexpr int kLineTagBits = 8;

// What follows is all zero at first, but for magic and version, which the supervisor writes before
// any engine maps the roster. The tags have none: an engine could spoil them for others. Relaxed
// wherever nothing else is said: nothing is published by these words.

struct LineRosterSegment {
  struct alignas(kCacheLineBytes) Engines {
    SlotSet set;
  };

  alignas(kCacheLineBytes) std::uint64_t magic;
  std::uint32_t version;
  Engines engines;
  std::atomic<std::uint32_t> weights[kMostEngines];  // by slot
};
static_assert(sizeof(LineRosterSegment) == 2 * kCacheLineBytes + kMostEngines * 4);

struct LineTagsSegment {
  struct alignas(kCacheLineBytes) Wanting {
    SlotSet set;
  };
  struct Tags {
    std::atomic<std::uint64_t> of[kMostEngines];  // by slot
  };

  Wanting wanting[kMostLines];
  Tags tags[kMostLines];
};
static_assert(sizeof(LineTagsSegment) == kMostLines * (kCacheLineBytes + kMostEngines * 8));

// The number of the line to a host; the same in all processes. FNV-1a.
constexpr std::size_t LineOf(std::string_view host) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char one : host) {
    hash = (hash ^ static_cast<unsigned char>(one)) * 0x100000001b3;
  }
  return static_cast<std::size_t>((hash ^ (hash >> 32)) % kMostLines);
}

}  // namespace ringd

#endif  // RINGD_PROTO_SHM_LINE_SHARES_H_
