#include "daemon/execution/bucket_layout.h"

namespace ringd {
namespace {

constexpr std::size_t AlignUp(std::size_t value) noexcept {
  constexpr std::size_t kUnit = BucketLayout::kAlignment;
  return (value + kUnit - 1) / kUnit * kUnit;
}

}  // namespace

BucketLayout::BucketLayout(std::span<const TensorMeta* const> metas, const RanksByNode& ranks)
    : kind_(metas.front()->kind), data_type_(metas.front()->dtype), op_(metas.front()->op) {
  std::size_t rank_count = 0;
  for (const auto& on_node : ranks) rank_count += on_node.size();
  std::vector<TensorScaling> scalings;
  for (const TensorMeta* meta : metas) {
    scalings.push_back(ScalingOf(data_type_, op_, meta->prescale, meta->postscale,
                                 static_cast<int>(rank_count), ranks.size() > 1));
  }
  if (!traits().HasParts()) {
    sections_.reserve(metas.size());
    for (std::size_t t = 0; t < metas.size(); ++t) {
      Append({.bytes = ByteCount(*metas[t]), .scaling = scalings[t], .tensor = t});
    }
    return;
  }
  const std::size_t element = SizeOf(data_type_);
  std::vector<std::vector<std::size_t>> offsets;
  for (const TensorMeta* meta : metas) offsets.push_back(OffsetsOf(*meta, rank_count));
  sections_.reserve(metas.size() * rank_count);
  for (const auto& on_node : ranks) {
    const std::size_t begin = AlignUp(bytes_);
    bytes_ = begin;
    for (std::size_t t = 0; t < metas.size(); ++t) {
      for (std::size_t m = 0; m < on_node.size(); ++m) {
        const auto rank = static_cast<std::size_t>(on_node[m].value());
        Append({.bytes = static_cast<std::size_t>(metas[t]->parts[rank]) * element,
                .scaling = scalings[t],
                .tensor = t,
                .offset = offsets[t][rank] * element,
                .owner = static_cast<std::int32_t>(m)});
      }
    }
    blocks_.push_back({begin, bytes_});
  }
}

std::vector<std::size_t> BucketLayout::OffsetsOf(const TensorMeta& meta, std::size_t rank_count) {
  std::vector<std::size_t> offsets(rank_count);
  std::size_t before = 0;
  for (std::size_t rank = 0; rank < rank_count; ++rank) {
    offsets[rank] = before;
    before += static_cast<std::size_t>(meta.parts[rank]);
  }
  return offsets;
}

void BucketLayout::Append(Section section) {
  section.begin = AlignUp(bytes_);
  // An empty one takes no room, not even a gap before the next block.
  if (section.bytes > 0) bytes_ = section.end();
  payload_bytes_ += section.bytes;
  sections_.push_back(section);
}

}  // namespace ringd
