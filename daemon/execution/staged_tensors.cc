#include "daemon/execution/staged_tensors.h"

#include <algorithm>

namespace ringd {
StagedTensors::StagedTensors(const BucketLayout& layout, const std::vector<StagedBuffer>& buffers) {
  entries_.reserve(buffers.size());
  for (const StagedBuffer& buffer : buffers) {
    const BucketLayout::Section& tensor = layout.sections()[buffer.tensor];
    Entry& entry = entries_.emplace_back(Entry{tensor.begin, tensor.bytes, buffer, nullptr});
    if (!buffer.result) continue;
    entry.missing = std::make_unique<std::atomic<std::uint64_t>[]>(kMaxStagingPieces);
    const std::uint64_t length = StagingPieceBytes(tensor.bytes);
    for (std::uint64_t at = 0; at < tensor.bytes; at += length) {
      entry.missing[at / length].store(std::min<std::uint64_t>(length, tensor.bytes - at),
                                       std::memory_order_relaxed);
    }
  }
}

template <typename Visit>
bool StagedTensors::VisitOverlaps(std::size_t begin, std::size_t end, Visit visit) const noexcept {
  auto entry = std::partition_point(entries_.begin(), entries_.end(),
                                    [begin](const Entry& e) { return e.begin + e.bytes <= begin; });
  for (; entry != entries_.end() && entry->begin < end; ++entry) {
    const std::size_t from = std::max(begin, entry->begin) - entry->begin;
    const std::size_t to = std::min(end, entry->begin + entry->bytes) - entry->begin;
    if (from < to && !visit(*entry, from, to)) return false;
  }
  return true;
}

bool StagedTensors::SourcesReady(std::size_t begin, std::size_t end) const noexcept {
  return VisitOverlaps(begin, end, [](const Entry& entry, std::size_t from, std::size_t to) {
    if (!entry.buffer.source) return true;
    const std::uint64_t needed = StagingPieces(entry.bytes, from, to);
    return (entry.buffer.progress->source.load(std::memory_order_seq_cst) & needed) == needed;
  });
}

void StagedTensors::NoteResults(std::size_t begin, std::size_t end, std::size_t first,
                                std::size_t last) noexcept {
  VisitOverlaps(begin, end, [=](const Entry& entry, std::size_t from, std::size_t to) {
    if (!entry.buffer.result || entry.buffer.member < first || entry.buffer.member >= last) {
      return true;
    }
    const std::size_t length = StagingPieceBytes(entry.bytes);
    for (std::size_t at = from; at < to;) {
      const std::size_t piece = at / length;
      const std::size_t part = std::min(to, (piece + 1) * length) - at;
      at += part;
      // Each releases what it has written; who comes last has acquired all of it, and hands it on.
      const std::uint64_t before = entry.missing[piece].fetch_sub(part, std::memory_order_acq_rel);
      if (before != part) continue;
      entry.buffer.progress->result.fetch_or(std::uint64_t{1} << piece, std::memory_order_release);
      entry.buffer.waiters->Ring();
    }
    return true;
  });
}

}  // namespace ringd
