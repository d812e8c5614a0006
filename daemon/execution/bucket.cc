#include "daemon/execution/bucket.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "proto/base/per_member.h"
#include "proto/reduce/reduce.h"

namespace ringd {
namespace {

// From this size on a bucket's results would only push each other out of the caches.
constexpr std::size_t kStreamFromBytes = std::size_t{4} << 20;

// The first section that ends behind byte `begin` of the bucket.
auto FirstBehind(std::span<const BucketLayout::Section> sections, std::size_t begin) {
  return std::partition_point(sections.begin(), sections.end(),
                              [begin](const auto& section) { return section.end() <= begin; });
}

}  // namespace

BucketMemory::BucketMemory(const BucketLayout& layout, int member_count,
                           std::vector<TensorBuffers> buffers, int root_member)
    : layout_(layout),
      member_count_(static_cast<std::size_t>(member_count)),
      streaming_(layout.bytes() * member_count_ >= kStreamFromBytes ? Streaming::kPast
                                                                    : Streaming::kCached),
      buffers_(std::move(buffers)),
      root_member_(root_member) {}

template <typename Visit>
void BucketMemory::ForEachOverlap(std::size_t begin, std::size_t end, Visit visit) const noexcept {
  const auto sections = layout_.sections();
  const std::size_t element = SizeOf(layout_.data_type());
  for (auto section = FirstBehind(sections, begin);
       section != sections.end() && section->begin < end; ++section) {
    const std::size_t from = std::max(begin, section->begin);
    const std::size_t to = std::min(end, section->end());
    if (from >= to) continue;
    visit(Piece{*section, &buffers_[section->tensor * member_count_], from - section->begin,
                (to - from) / element});
  }
}

std::optional<BucketMemory::Piece> BucketMemory::OnePiece(std::size_t begin,
                                                          std::size_t end) const noexcept {
  const auto sections = layout_.sections();
  const auto section = FirstBehind(sections, begin);
  if (section == sections.end() || begin < section->begin || section->end() < end) {
    return std::nullopt;
  }
  return Piece{*section, &buffers_[section->tensor * member_count_], begin - section->begin,
               (end - begin) / SizeOf(layout_.data_type())};
}

std::size_t BucketMemory::PlaceOf(const Piece& piece, Extent extent) noexcept {
  return piece.offset + (extent == Extent::kAll ? piece.section.offset : 0);
}

const std::byte* BucketMemory::SourceOf(const Piece& piece, std::size_t member) const noexcept {
  return piece.members[member].source + PlaceOf(piece, layout_.traits().input);
}

std::byte* BucketMemory::DestinationOf(const Piece& piece, std::size_t member) const noexcept {
  return piece.members[member].destination + PlaceOf(piece, layout_.traits().output);
}

std::optional<std::size_t> BucketMemory::GiverOf(const Piece& piece) const noexcept {
  const std::int32_t giver = layout_.traits().rooted ? root_member_ : piece.section.owner;
  if (giver < 0) return std::nullopt;
  return static_cast<std::size_t>(giver);
}

BucketMemory::Members BucketMemory::ReceiversOf(const Piece& piece) const noexcept {
  if (layout_.traits().output == Extent::kAll) return {0, member_count_};
  const auto owner = static_cast<std::size_t>(piece.section.owner);
  return {owner, owner + 1};
}

void BucketMemory::Combine(const Piece& piece, const std::byte* partial,
                           std::span<void* const> destinations, Scaling scaling,
                           Streaming streaming) const noexcept {
  PerMember<const void*> sources(member_count_);
  for (std::size_t m = 0; m < member_count_; ++m) sources[m] = SourceOf(piece, m);
  CombineContributions(layout_.data_type(), layout_.op(), piece.section.scaling.prescale, partial,
                       sources.span(), destinations, piece.elements, scaling, streaming);
}

void BucketMemory::CombineToAll(const Piece& piece, const std::byte* partial, std::byte* further,
                                Streaming streaming) const noexcept {
  const Members receivers = ReceiversOf(piece);
  PerMember<void*> destinations(receivers.count() + (further != nullptr ? 1 : 0));
  for (std::size_t m = receivers.first; m < receivers.last; ++m) {
    destinations[m - receivers.first] = DestinationOf(piece, m);
  }
  if (further != nullptr) destinations[receivers.count()] = further;
  Combine(piece, partial, destinations.span(), piece.section.scaling.result, streaming);
}

const std::byte* BucketMemory::Source(std::size_t begin, std::size_t end) const noexcept {
  const bool combines = layout_.traits().combines;
  if (combines && member_count_ != 1) return nullptr;
  const std::optional<Piece> piece = OnePiece(begin, end);
  if (!piece.has_value()) return nullptr;
  if (combines) return piece->section.scaling.prescale == 1.0 ? SourceOf(*piece, 0) : nullptr;
  const std::optional<std::size_t> giver = GiverOf(*piece);
  return giver.has_value() ? SourceOf(*piece, *giver) : nullptr;
}

void BucketMemory::Pack(std::byte* buffer, std::size_t begin, std::size_t end) const noexcept {
  ForEachOverlap(begin, end, [&](const Piece& piece) {
    std::byte* const target = buffer + piece.begin();
    // The wire reads the buffer next: so here, and wherever the buffer is written.
    if (layout_.traits().combines) {
      void* const destinations[] = {target};
      Combine(piece, nullptr, destinations, Scaling{}, Streaming::kCached);
    } else if (const std::optional<std::size_t> giver = GiverOf(piece)) {
      CopyScaled(layout_.data_type(), target, SourceOf(piece, *giver), piece.elements, {},
                 Streaming::kCached);
    }
  });
}

void BucketMemory::Add(std::byte* buffer, std::size_t begin, std::size_t end,
                       const std::byte* partial) const noexcept {
  ForEachOverlap(begin, end, [&](const Piece& piece) {
    void* const destinations[] = {buffer + piece.begin()};
    Combine(piece, partial + (piece.begin() - begin), destinations, Scaling{}, Streaming::kCached);
  });
}

const std::byte* BucketMemory::AddLast(std::byte* buffer, std::size_t begin, std::size_t end,
                                       const std::byte* partial) const noexcept {
  const bool sent_on = layout_.traits().output == Extent::kAll;
  const std::optional<Piece> whole =
      sent_on && member_count_ == 1 ? OnePiece(begin, end) : std::nullopt;
  ForEachOverlap(begin, end, [&](const Piece& piece) {
    // In place nothing goes past the caches, only the reading ahead is gained.
    const std::size_t first = ReceiversOf(piece).first;
    const bool in_place = SourceOf(piece, first) == DestinationOf(piece, first);
    CombineToAll(piece, partial + (piece.begin() - begin),
                 whole.has_value() || !sent_on ? nullptr : buffer + piece.begin(),
                 in_place ? streaming_ : Streaming::kCached);
  });
  return whole.has_value() ? DestinationOf(*whole, 0) : buffer + begin;
}

bool BucketMemory::SumsExactly(DataType type) noexcept {
  return !IsFloatingPoint(type) || SizeOf(type) >= sizeof(float);
}

void BucketMemory::CombineWithSum(std::byte* buffer, std::size_t begin, std::size_t end,
                                  const std::byte* partial, bool last) const noexcept {
  ForEachOverlap(begin, end, [&](const Piece& piece) {
    std::byte* const sum = buffer + piece.begin();
    const void* const sources[] = {sum, partial + (piece.begin() - begin)};
    void* const destinations[] = {sum};
    ReduceManyToMany(layout_.data_type(), layout_.op(), sources, destinations, piece.elements,
                     last ? piece.section.scaling.result : Scaling{}, Streaming::kCached);
  });
}

void BucketMemory::AddToSum(std::byte* buffer, std::size_t begin, std::size_t end,
                            const std::byte* partial) const noexcept {
  CombineWithSum(buffer, begin, end, partial, /*last=*/false);
}

const std::byte* BucketMemory::AddLastToSum(std::byte* buffer, std::size_t begin, std::size_t end,
                                            const std::byte* partial) const noexcept {
  CombineWithSum(buffer, begin, end, partial, /*last=*/true);
  // The destinations are not in the caches, unlike the buffer's chunk, so they are not read again.
  return Distribute(buffer, begin, end, buffer + begin, /*keep=*/true);
}

void BucketMemory::AddLastInBuffer(std::byte* buffer, std::size_t begin, std::size_t end,
                                   const std::byte* partial) const noexcept {
  ForEachOverlap(begin, end, [&](const Piece& piece) {
    void* const destinations[] = {buffer + piece.begin()};
    Combine(piece, partial + (piece.begin() - begin), destinations, piece.section.scaling.result,
            Streaming::kCached);
  });
}

void BucketMemory::AddLastToSumInBuffer(std::byte* buffer, std::size_t begin, std::size_t end,
                                        const std::byte* partial) const noexcept {
  CombineWithSum(buffer, begin, end, partial, /*last=*/true);
}

void BucketMemory::Finish(std::byte* buffer, std::size_t begin, std::size_t end) const noexcept {
  ForEachOverlap(begin, end, [&](const Piece& piece) {
    Scale(layout_.data_type(), buffer + piece.begin(), piece.elements,
          piece.section.scaling.result);
  });
  Distribute(buffer, begin, end, buffer + begin, false);
}

const std::byte* BucketMemory::Distribute(std::byte* buffer, std::size_t begin, std::size_t end,
                                          const std::byte* result, bool keep) const noexcept {
  if (keep && member_count_ == 1) {
    if (const std::optional<Piece> whole = OnePiece(begin, end)) {
      std::byte* const destination = DestinationOf(*whole, 0);
      CopyScaled(layout_.data_type(), destination, result, whole->elements, {}, Streaming::kCached);
      return destination;
    }
  }
  if (keep && result != buffer + begin) std::memcpy(buffer + begin, result, end - begin);
  ForEachOverlap(begin, end, [&](const Piece& piece) {
    const std::byte* const source = result + (piece.begin() - begin);
    const Members receivers = ReceiversOf(piece);
    for (std::size_t m = receivers.first; m < receivers.last; ++m) {
      std::byte* const destination = DestinationOf(piece, m);
      // Of what is gathered in place the own part is there already.
      if (destination == source) continue;
      CopyScaled(layout_.data_type(), destination, source, piece.elements, {}, streaming_);
    }
  });
  return keep ? buffer + begin : nullptr;
}

void BucketMemory::CopyToFirstMember(std::size_t begin, std::size_t end,
                                     const std::byte* result) const noexcept {
  ForEachOverlap(begin, end, [&](const Piece& piece) {
    // It is read from there next.
    CopyScaled(layout_.data_type(), DestinationOf(piece, 0), result + (piece.begin() - begin),
               piece.elements, {}, Streaming::kCached);
  });
}

void BucketMemory::CopyToMembers(const std::byte* buffer, std::size_t begin, std::size_t end,
                                 ResultPlace place, std::size_t first,
                                 std::size_t last) const noexcept {
  const bool from_first = place == ResultPlace::kFirstMember;
  ForEachOverlap(begin, end, [&](const Piece& piece) {
    const std::byte* const source = from_first ? DestinationOf(piece, 0) : buffer + piece.begin();
    for (std::size_t m = std::max<std::size_t>(first, from_first ? 1 : 0); m < last; ++m) {
      CopyScaled(layout_.data_type(), DestinationOf(piece, m), source, piece.elements, {},
                 streaming_);
    }
  });
}

}  // namespace ringd
