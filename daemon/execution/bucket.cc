#include "daemon/execution/bucket.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "proto/base/per_member.h"
#include "proto/operations/operation_traits.h"
#include "proto/reduce/reduce.h"

namespace ringd {
namespace {

// From this size on a bucket's results would only push each other out of the caches.
constexpr std::size_t kStreamFromBytes = std::size_t{4} << 20;

std::size_t AlignUp(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

// The first tensor that ends behind byte `begin` of the bucket.
auto FirstBehind(std::span<const BucketLayout::Tensor> tensors, std::size_t begin) {
  return std::partition_point(tensors.begin(), tensors.end(), [begin](const auto& tensor) {
    return tensor.begin + tensor.bytes <= begin;
  });
}

}  // namespace

BucketLayout::BucketLayout(std::span<const TensorMeta* const> metas, int rank_count, int node_count)
    : kind_(metas.front()->kind), data_type_(metas.front()->dtype), op_(metas.front()->op) {
  tensors_.reserve(metas.size());
  for (const TensorMeta* meta : metas) {
    Tensor tensor;
    tensor.begin = AlignUp(bytes_, kTensorAlignment);
    tensor.bytes = ByteCount(*meta);
    tensor.scaling =
        ScalingOf(data_type_, op_, meta->prescale, meta->postscale, rank_count, node_count > 1);
    bytes_ = tensor.begin + tensor.bytes;
    payload_bytes_ += tensor.bytes;
    tensors_.push_back(tensor);
  }
}

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
  const auto tensors = layout_.tensors();
  const std::size_t element = SizeOf(layout_.data_type());
  for (auto tensor = FirstBehind(tensors, begin); tensor != tensors.end() && tensor->begin < end;
       ++tensor) {
    const std::size_t from = std::max(begin, tensor->begin);
    const std::size_t to = std::min(end, tensor->begin + tensor->bytes);
    if (from >= to) continue;
    const auto index = static_cast<std::size_t>(tensor - tensors.begin());
    visit(Piece{*tensor, &buffers_[index * member_count_], from - tensor->begin,
                (to - from) / element});
  }
}

std::optional<BucketMemory::Piece> BucketMemory::OnePiece(std::size_t begin,
                                                          std::size_t end) const noexcept {
  const auto tensors = layout_.tensors();
  const auto tensor = FirstBehind(tensors, begin);
  if (tensor == tensors.end() || begin < tensor->begin || tensor->begin + tensor->bytes < end) {
    return std::nullopt;
  }
  const auto index = static_cast<std::size_t>(tensor - tensors.begin());
  return Piece{*tensor, &buffers_[index * member_count_], begin - tensor->begin,
               (end - begin) / SizeOf(layout_.data_type())};
}

void BucketMemory::Combine(const Piece& piece, const std::byte* partial,
                           std::span<void* const> destinations, Scaling scaling,
                           Streaming streaming) const noexcept {
  PerMember<const void*> sources(member_count_);
  for (std::size_t m = 0; m < member_count_; ++m) {
    sources[m] = piece.members[m].source + piece.offset;
  }
  CombineContributions(layout_.data_type(), layout_.op(), piece.tensor.scaling.prescale, partial,
                       sources.span(), destinations, piece.elements, scaling, streaming);
}

void BucketMemory::CombineToAll(const Piece& piece, const std::byte* partial, std::byte* further,
                                Streaming streaming) const noexcept {
  PerMember<void*> destinations(member_count_ + (further != nullptr ? 1 : 0));
  for (std::size_t m = 0; m < member_count_; ++m) {
    destinations[m] = piece.members[m].destination + piece.offset;
  }
  if (further != nullptr) destinations[member_count_] = further;
  Combine(piece, partial, destinations.span(), piece.tensor.scaling.result, streaming);
}

const std::byte* BucketMemory::Source(std::size_t begin, std::size_t end) const noexcept {
  const bool rooted = TraitsOf(layout_.kind()).rooted;
  if (rooted ? root_member_ < 0 : member_count_ != 1) return nullptr;
  const std::optional<Piece> piece = OnePiece(begin, end);
  if (!piece.has_value()) return nullptr;
  if (!rooted && piece->tensor.scaling.prescale != 1.0) return nullptr;
  const auto member = rooted ? static_cast<std::size_t>(root_member_) : 0;
  return piece->members[member].source + piece->offset;
}

void BucketMemory::Pack(std::byte* buffer, std::size_t begin, std::size_t end) const noexcept {
  ForEachOverlap(begin, end, [&](const Piece& piece) {
    std::byte* const target = buffer + piece.begin();
    // The wire reads the buffer next: so here, and wherever the buffer is written.
    if (TraitsOf(layout_.kind()).combines) {
      void* const destinations[] = {target};
      Combine(piece, nullptr, destinations, Scaling{}, Streaming::kCached);
    } else if (root_member_ >= 0) {
      CopyScaled(layout_.data_type(), target,
                 piece.members[static_cast<std::size_t>(root_member_)].source + piece.offset,
                 piece.elements, {}, Streaming::kCached);
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
  const std::optional<Piece> whole = member_count_ == 1 ? OnePiece(begin, end) : std::nullopt;
  ForEachOverlap(begin, end, [&](const Piece& piece) {
    // In place nothing goes past the caches, only the reading ahead is gained.
    const bool in_place = piece.members[0].source == piece.members[0].destination;
    CombineToAll(piece, partial + (piece.begin() - begin),
                 whole.has_value() ? nullptr : buffer + piece.begin(),
                 in_place ? streaming_ : Streaming::kCached);
  });
  return whole.has_value() ? whole->members[0].destination + whole->offset : buffer + begin;
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
                     last ? piece.tensor.scaling.result : Scaling{}, Streaming::kCached);
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
    Combine(piece, partial + (piece.begin() - begin), destinations, piece.tensor.scaling.result,
            Streaming::kCached);
  });
}

void BucketMemory::AddLastToSumInBuffer(std::byte* buffer, std::size_t begin, std::size_t end,
                                        const std::byte* partial) const noexcept {
  CombineWithSum(buffer, begin, end, partial, /*last=*/true);
}

void BucketMemory::Finish(std::byte* buffer, std::size_t begin, std::size_t end) const noexcept {
  ForEachOverlap(begin, end, [&](const Piece& piece) {
    Scale(layout_.data_type(), buffer + piece.begin(), piece.elements, piece.tensor.scaling.result);
  });
  Distribute(buffer, begin, end, buffer + begin, false);
}

const std::byte* BucketMemory::Distribute(std::byte* buffer, std::size_t begin, std::size_t end,
                                          const std::byte* result, bool keep) const noexcept {
  if (keep && member_count_ == 1) {
    if (const std::optional<Piece> whole = OnePiece(begin, end)) {
      std::byte* const destination = whole->members[0].destination + whole->offset;
      CopyScaled(layout_.data_type(), destination, result, whole->elements, {}, Streaming::kCached);
      return destination;
    }
  }
  if (keep && result != buffer + begin) std::memcpy(buffer + begin, result, end - begin);
  ForEachOverlap(begin, end, [&](const Piece& piece) {
    for (std::size_t m = 0; m < member_count_; ++m) {
      CopyScaled(layout_.data_type(), piece.members[m].destination + piece.offset,
                 result + (piece.begin() - begin), piece.elements, {}, streaming_);
    }
  });
  return keep ? buffer + begin : nullptr;
}

void BucketMemory::CopyToFirstMember(std::size_t begin, std::size_t end,
                                     const std::byte* result) const noexcept {
  ForEachOverlap(begin, end, [&](const Piece& piece) {
    // It is read from there next.
    CopyScaled(layout_.data_type(), piece.members[0].destination + piece.offset,
               result + (piece.begin() - begin), piece.elements, {}, Streaming::kCached);
  });
}

void BucketMemory::CopyToMembers(const std::byte* buffer, std::size_t begin, std::size_t end,
                                 ResultPlace place, std::size_t first,
                                 std::size_t last) const noexcept {
  const bool from_first = place == ResultPlace::kFirstMember;
  ForEachOverlap(begin, end, [&](const Piece& piece) {
    const std::byte* const source =
        from_first ? piece.members[0].destination + piece.offset : buffer + piece.begin();
    for (std::size_t m = std::max<std::size_t>(first, from_first ? 1 : 0); m < last; ++m) {
      CopyScaled(layout_.data_type(), piece.members[m].destination + piece.offset, source,
                 piece.elements, {}, streaming_);
    }
  });
}

}  // namespace ringd
