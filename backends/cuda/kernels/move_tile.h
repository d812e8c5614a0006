// The body of the kernel that packs and unpacks: one template, which nvcc compiles for GPUs and the
// host's compiler for tests.
#ifndef RINGD_BACKENDS_CUDA_KERNELS_MOVE_TILE_H_
#define RINGD_BACKENDS_CUDA_KERNELS_MOVE_TILE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "backends/cuda/kernels/element.h"
#include "backends/cuda/kernels/move_segment.h"

namespace ringd::kernels {

// Which of the threads that share a tile this one is.
struct Lane {
  unsigned index;
  unsigned count;
};

// A part of a segment. Precondition of all below: both pointers reach over `count` elements.
struct Piece {
  const unsigned char* source;
  unsigned char* destination;
  std::uint64_t count;
};

template <std::size_t kAlignment, typename T, std::size_t kCount>
RINGD_KERNEL_BODY void LoadAll(T (&values)[kCount], const unsigned char* from) {
  std::memcpy(values, __builtin_assume_aligned(from, kAlignment), sizeof values);
}

template <std::size_t kAlignment, typename T, std::size_t kCount>
RINGD_KERNEL_BODY void StoreAll(unsigned char* to, const T (&values)[kCount]) {
  std::memcpy(__builtin_assume_aligned(to, kAlignment), values, sizeof values);
}

RINGD_KERNEL_BODY inline bool IsAligned(const void* pointer, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0;
}

// `kGroup` elements at a time; what is left of `piece` remains there. The alignments are those of a
// whole group, in bytes.
template <std::size_t kGroup, std::size_t kFromAlignment, std::size_t kToAlignment, typename Move>
RINGD_KERNEL_BODY void MoveGroups(Piece& piece, Lane lane, const Move& move) {
  using From = typename Move::From;
  using To = typename Move::To;
  const std::uint64_t groups = piece.count / kGroup;
  for (std::uint64_t group = lane.index; group < groups; group += lane.count) {
    From from[kGroup];
    To to[kGroup];
    LoadAll<kFromAlignment>(from, piece.source + group * sizeof from);
    for (std::size_t i = 0; i < kGroup; ++i) to[i] = move(from[i]);
    StoreAll<kToAlignment>(piece.destination + group * sizeof to, to);
  }
  piece.source += groups * kGroup * sizeof(From);
  piece.destination += groups * kGroup * sizeof(To);
  piece.count -= groups * kGroup;
}

// Four elements at a time where they are aligned as a whole (a GPU moves at most 16 bytes at once),
// else one by one, and where not even one is aligned by its bytes.
template <typename Move>
RINGD_KERNEL_BODY void MoveElements(Piece piece, Lane lane, const Move& move) {
  constexpr std::size_t kFrom = sizeof(typename Move::From);
  constexpr std::size_t kTo = sizeof(typename Move::To);
  constexpr std::size_t kFromFour = 4 * kFrom > 16 ? 16 : 4 * kFrom;
  constexpr std::size_t kToFour = 4 * kTo > 16 ? 16 : 4 * kTo;
  if (IsAligned(piece.source, kFromFour) && IsAligned(piece.destination, kToFour)) {
    MoveGroups<4, kFromFour, kToFour>(piece, lane, move);
  }
  if (IsAligned(piece.source, kFrom) && IsAligned(piece.destination, kTo)) {
    MoveGroups<1, kFrom, kTo>(piece, lane, move);
  } else {
    MoveGroups<1, 1, 1>(piece, lane, move);
  }
}

// The widest units that both addresses allow. Addresses that are equally far from a multiple of 16
// come to one after the same few bytes.
RINGD_KERNEL_BODY inline void MoveBytes(const unsigned char* source, unsigned char* destination,
                                        std::uint64_t bytes, Lane lane) {
  const auto from = reinterpret_cast<std::uintptr_t>(source);
  const std::uintptr_t difference = from ^ reinterpret_cast<std::uintptr_t>(destination);
  if (difference % 16 == 0) {
    std::uint64_t head = (16 - from % 16) % 16;
    if (head > bytes) head = bytes;
    MoveElements(Piece{source, destination, head}, lane, Copy<std::uint8_t>{});
    const std::uint64_t words = (bytes - head) / 4;
    MoveElements(Piece{source + head, destination + head, words}, lane, Copy<std::uint32_t>{});
    const std::uint64_t done = head + words * 4;
    MoveElements(Piece{source + done, destination + done, bytes - done}, lane,
                 Copy<std::uint8_t>{});
  } else if (difference % 4 == 0 && from % 4 == 0) {
    const std::uint64_t words = bytes / 4;
    MoveElements(Piece{source, destination, words}, lane, Copy<std::uint32_t>{});
    MoveElements(Piece{source + words * 4, destination + words * 4, bytes % 4}, lane,
                 Copy<std::uint8_t>{});
  } else if (difference % 2 == 0 && from % 2 == 0) {
    // 16-bit elements behind an odd number of them.
    const std::uint64_t halves = bytes / 2;
    MoveElements(Piece{source, destination, halves}, lane, Copy<std::uint16_t>{});
    MoveElements(Piece{source + halves * 2, destination + halves * 2, bytes % 2}, lane,
                 Copy<std::uint8_t>{});
  } else {
    MoveElements(Piece{source, destination, bytes}, lane, Copy<std::uint8_t>{});
  }
}

template <DataType kFrom, DataType kTo>
RINGD_KERNEL_BODY void MoveFloats(const MoveSegment& segment, Piece piece, Lane lane) {
  using Move = FloatMove<kFrom, kTo>;
  const double factor = segment.factor / static_cast<double>(segment.divisor);
  MoveElements(piece, lane, Move{static_cast<typename Move::Wide>(factor)});
}

template <DataType kFrom>
RINGD_KERNEL_BODY bool MoveFloatsFrom(const MoveSegment& segment, Piece piece, Lane lane) {
  switch (segment.destination_type) {
    case DataType::kFloat64:
      MoveFloats<kFrom, DataType::kFloat64>(segment, piece, lane);
      return true;
    case DataType::kFloat32:
      MoveFloats<kFrom, DataType::kFloat32>(segment, piece, lane);
      return true;
    case DataType::kFloat16:
      MoveFloats<kFrom, DataType::kFloat16>(segment, piece, lane);
      return true;
    case DataType::kBfloat16:
      MoveFloats<kFrom, DataType::kBfloat16>(segment, piece, lane);
      return true;
    case DataType::kFloat8E4M3:
      MoveFloats<kFrom, DataType::kFloat8E4M3>(segment, piece, lane);
      return true;
    case DataType::kFloat8E5M2:
      MoveFloats<kFrom, DataType::kFloat8E5M2>(segment, piece, lane);
      return true;
    default:
      return false;
  }
}

template <typename Integer>
RINGD_KERNEL_BODY bool MoveIntegers(const MoveSegment& segment, Piece piece, Lane lane) {
  if (segment.source_type != segment.destination_type) return false;
  MoveElements(piece, lane, IntegerMove<Integer>{segment.factor, segment.divisor});
  return true;
}

// False for a pair of types that MovePlan does not let in; nothing is written then.
RINGD_KERNEL_BODY inline bool MovePiece(const MoveSegment& segment, Piece piece, Lane lane) {
  if (segment.source_type == segment.destination_type && segment.factor == 1.0 &&
      segment.divisor == 1) {
    MoveBytes(piece.source, piece.destination, piece.count * SizeOf(segment.source_type), lane);
    return true;
  }
  switch (segment.source_type) {
    case DataType::kFloat64:
      return MoveFloatsFrom<DataType::kFloat64>(segment, piece, lane);
    case DataType::kFloat32:
      return MoveFloatsFrom<DataType::kFloat32>(segment, piece, lane);
    case DataType::kFloat16:
      return MoveFloatsFrom<DataType::kFloat16>(segment, piece, lane);
    case DataType::kBfloat16:
      return MoveFloatsFrom<DataType::kBfloat16>(segment, piece, lane);
    case DataType::kFloat8E4M3:
      return MoveFloatsFrom<DataType::kFloat8E4M3>(segment, piece, lane);
    case DataType::kFloat8E5M2:
      return MoveFloatsFrom<DataType::kFloat8E5M2>(segment, piece, lane);
    case DataType::kInt8:
      return MoveIntegers<std::int8_t>(segment, piece, lane);
    case DataType::kUint8:
      return MoveIntegers<std::uint8_t>(segment, piece, lane);
    case DataType::kInt32:
      return MoveIntegers<std::int32_t>(segment, piece, lane);
    case DataType::kUint32:
      return MoveIntegers<std::uint32_t>(segment, piece, lane);
    case DataType::kInt64:
      return MoveIntegers<std::int64_t>(segment, piece, lane);
    case DataType::kUint64:
      return MoveIntegers<std::uint64_t>(segment, piece, lane);
    default:
      return false;
  }
}

// The last segment that begins at `tile` or before. Precondition: there is one.
RINGD_KERNEL_BODY inline const MoveSegment& SegmentOf(const MoveSegment* segments,
                                                      std::uint32_t segment_count,
                                                      std::uint32_t tile) {
  std::uint32_t first = 0;
  std::uint32_t past = segment_count;
  while (past - first > 1) {
    const std::uint32_t middle = first + (past - first) / 2;
    if (segments[middle].first_tile <= tile) {
      first = middle;
    } else {
      past = middle;
    }
  }
  return segments[first];
}

// This lane's share of a tile. `memory(address, bytes)` gives the pointer by which a device address
// is reached; null where there is nothing, and then the tile is left alone and false returned.
template <typename Memory>
RINGD_KERNEL_BODY bool MoveTile(const MoveSegment* segments, std::uint32_t segment_count,
                                std::uint32_t tile, Lane lane, const Memory& memory) {
  const MoveSegment& segment = SegmentOf(segments, segment_count, tile);
  const std::uint64_t whole = MoveTileElements(segment.source_type, segment.destination_type);
  const std::uint64_t begin = whole * (tile - segment.first_tile);
  if (begin >= segment.count) return false;
  const std::uint64_t left = segment.count - begin;
  const std::uint64_t count = left < whole ? left : whole;
  const std::uint64_t from = SizeOf(segment.source_type);
  const std::uint64_t to = SizeOf(segment.destination_type);
  const auto* const source = static_cast<const unsigned char*>(
      memory(segment.source + begin * from, static_cast<std::size_t>(count * from)));
  auto* const destination = static_cast<unsigned char*>(
      memory(segment.destination + begin * to, static_cast<std::size_t>(count * to)));
  if (source == nullptr || destination == nullptr) return false;
  return MovePiece(segment, Piece{source, destination, count}, lane);
}

}  // namespace ringd::kernels

#endif  // RINGD_BACKENDS_CUDA_KERNELS_MOVE_TILE_H_
