#include "daemon/execution/bucket.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace ringd {
namespace {

// More local ranks than this are combined in several passes.
constexpr std::size_t kMembersPerPass = 16;
// Elements of a piece that is scaled on its way: two such pieces fit the first-level cache.
constexpr std::size_t kScaledPieceBytes = 8 * 1024;
// From this size on a bucket's results would only push each other out of the caches.
constexpr std::size_t kStreamFromBytes = std::size_t{4} << 20;

std::size_t AlignUp(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

BucketLayout::BucketLayout(std::span<const TensorMeta* const> metas, int rank_count)
    : kind_(metas.front()->kind), data_type_(metas.front()->dtype), op_(metas.front()->op) {
  tensors_.reserve(metas.size());
  for (const TensorMeta* meta : metas) {
    Tensor tensor;
    tensor.begin = AlignUp(bytes_, kTensorAlignment);
    tensor.bytes = ByteCount(*meta);
    tensor.prescale = meta->prescale;
    tensor.postscale.factor = meta->postscale;
    tensor.postscale.divisor = op_ == ReduceOp::kAverage ? rank_count : 1;
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
  // The first tensor that ends behind `begin`.
  auto tensor = std::partition_point(
      tensors.begin(), tensors.end(),
      [begin](const auto& candidate) { return candidate.begin + candidate.bytes <= begin; });
  for (; tensor != tensors.end() && tensor->begin < end; ++tensor) {
    const std::size_t from = std::max(begin, tensor->begin);
    const std::size_t to = std::min(end, tensor->begin + tensor->bytes);
    if (from >= to) continue;
    visit(*tensor, static_cast<std::size_t>(tensor - tensors.begin()), from - tensor->begin,
          (to - from) / element);
  }
}

void BucketMemory::Combine(const BucketLayout::Tensor& tensor, std::size_t index,
                           std::size_t offset, std::size_t elements,
                           std::span<void* const> destinations, Scaling scaling,
                           Streaming streaming) const noexcept {
  const DataType type = layout_.data_type();
  const std::size_t element = SizeOf(type);
  const TensorBuffers* members = &buffers_[index * member_count_];
  if (tensor.prescale == 1.0 && member_count_ <= kMembersPerPass) {
    std::array<const void*, kMembersPerPass> sources;
    for (std::size_t m = 0; m < member_count_; ++m) sources[m] = members[m].source + offset;
    ReduceManyToMany(type, layout_.op(), std::span(sources.data(), member_count_), destinations,
                     elements, scaling, streaming);
    return;
  }
  // Rare: scale each rank's piece on its way, or more ranks than one pass takes.
  alignas(64) std::byte sum[kScaledPieceBytes];
  alignas(64) std::byte piece[kScaledPieceBytes];
  const std::size_t step = kScaledPieceBytes / element;
  for (std::size_t done = 0; done < elements; done += step) {
    const std::size_t count = std::min(step, elements - done);
    const std::size_t at = offset + done * element;
    CopyScaled(type, sum, members[0].source + at, count, Scaling{tensor.prescale, 1},
               Streaming::kCached);
    for (std::size_t m = 1; m < member_count_; ++m) {
      CopyScaled(type, piece, members[m].source + at, count, Scaling{tensor.prescale, 1},
                 Streaming::kCached);
      ReduceInto(type, layout_.op(), sum, piece, count);
    }
    for (void* destination : destinations) {
      CopyScaled(type, static_cast<std::byte*>(destination) + done * element, sum, count, scaling,
                 Streaming::kCached);
    }
  }
}

void BucketMemory::Pack(std::byte* buffer, std::size_t begin, std::size_t end) const noexcept {
  ForEachOverlap(begin, end,
                 [&](const BucketLayout::Tensor& tensor, std::size_t index, std::size_t offset,
                     std::size_t elements) {
                   std::byte* target = buffer + tensor.begin + offset;
                   if (layout_.kind() == CollectiveKind::kBroadcast) {
                     if (root_member_ < 0) return;
                     const auto& root =
                         buffers_[index * member_count_ + static_cast<std::size_t>(root_member_)];
                     CopyScaled(layout_.data_type(), target, root.source + offset, elements, {},
                                Streaming::kCached);
                     return;
                   }
                   void* const destinations[] = {target};
                   // The wire reads the buffer next.
                   Combine(tensor, index, offset, elements, destinations, Scaling{},
                           Streaming::kCached);
                 });
}

void BucketMemory::Unpack(const std::byte* buffer, std::size_t begin,
                          std::size_t end) const noexcept {
  const bool broadcast = layout_.kind() == CollectiveKind::kBroadcast;
  ForEachOverlap(begin, end,
                 [&](const BucketLayout::Tensor& tensor, std::size_t index, std::size_t offset,
                     std::size_t elements) {
                   const Scaling scaling = broadcast ? Scaling{} : tensor.postscale;
                   for (std::size_t m = 0; m < member_count_; ++m) {
                     CopyScaled(layout_.data_type(),
                                buffers_[index * member_count_ + m].destination + offset,
                                buffer + tensor.begin + offset, elements, scaling, streaming_);
                   }
                 });
}

void BucketMemory::Direct(std::size_t begin, std::size_t end) const noexcept {
  ForEachOverlap(
      begin, end,
      [&](const BucketLayout::Tensor& tensor, std::size_t index, std::size_t offset,
          std::size_t elements) {
        const TensorBuffers* members = &buffers_[index * member_count_];
        if (layout_.kind() == CollectiveKind::kBroadcast) {
          const std::byte* source = members[static_cast<std::size_t>(root_member_)].source + offset;
          for (std::size_t m = 0; m < member_count_; ++m) {
            if (members[m].destination + offset == source) continue;
            CopyScaled(layout_.data_type(), members[m].destination + offset, source, elements, {},
                       streaming_);
          }
          return;
        }
        if (member_count_ <= kMembersPerPass) {
          std::array<void*, kMembersPerPass> destinations;
          for (std::size_t m = 0; m < member_count_; ++m) {
            destinations[m] = members[m].destination + offset;
          }
          Combine(tensor, index, offset, elements, std::span(destinations.data(), member_count_),
                  tensor.postscale, streaming_);
          return;
        }
        std::vector<void*> destinations(member_count_);
        for (std::size_t m = 0; m < member_count_; ++m) {
          destinations[m] = members[m].destination + offset;
        }
        Combine(tensor, index, offset, elements, destinations, tensor.postscale, streaming_);
      });
}

}  // namespace ringd
