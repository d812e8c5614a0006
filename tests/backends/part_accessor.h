// A node's data of a kind with parts, apart from the collective's buffer, and what must come of it.
#ifndef RINGD_TESTS_BACKENDS_PART_ACCESSOR_H_
#define RINGD_TESTS_BACKENDS_PART_ACCESSOR_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/collective_request.h"
#include "proto/operations/operation_traits.h"
#include "proto/reduce/reduce.h"

namespace ringd {

// Blocks of so many elements each, by node, with `gap` elements between them.
inline std::vector<ByteRange> BlocksOf(const std::vector<std::size_t>& counts, std::size_t element,
                                       std::size_t gap = 0) {
  std::vector<ByteRange> blocks;
  std::size_t begin = 0;
  for (const std::size_t count : counts) {
    blocks.push_back({begin * element, (begin + count) * element});
    begin += count + gap;
  }
  return blocks;
}

// The sizes of source and destination follow from the kind's extents: all blocks, or the node's
// own. Checks that each byte that is the node's is taken and handed over once, and no other.
class PartAccessor final : public BufferAccessor {
 public:
  // `source` is the node's input, in the order of the blocks and without gaps. `refusals`: how
  // often to say "not ready". `packs`: what is sent goes through the buffer.
  PartAccessor(CollectiveRequest request, std::vector<ByteRange> blocks, std::size_t self,
               std::vector<std::byte> source, int refusals, bool packs)
      : request_(request),
        blocks_(std::move(blocks)),
        self_(self),
        refusals_(refusals),
        packs_(packs),
        source_(std::move(source)),
        destination_(SizeOfExtent(TraitsOf(request.kind).output), std::byte{0xEE}),
        taken_(source_.size()),
        handed_over_(destination_.size()) {}

  CollectiveRequest Request() {
    request_.accessor = this;
    return request_;
  }

  const std::byte* Input(std::size_t begin, std::size_t end) noexcept override {
    const std::byte* const input = Take(begin, end);
    if (input == nullptr || !packs_) return input;
    std::memcpy(request_.buffer + begin, input, end - begin);
    return request_.buffer + begin;
  }
  bool AddInput(std::size_t begin, std::size_t end, const std::byte* partial) noexcept override {
    const std::byte* const input = Take(begin, end);
    if (input == nullptr) return false;
    Combine(input, partial, request_.buffer + begin, end - begin);
    return true;
  }
  const std::byte* AddLastInput(std::size_t begin, std::size_t end,
                                const std::byte* partial) noexcept override {
    const std::byte* const input = Take(begin, end);
    if (input == nullptr) return nullptr;
    std::byte* const output = HandOver(begin, end);
    if (output == nullptr) return request_.buffer;
    Combine(input, partial, output, end - begin);
    return output;
  }
  void OnCombined(std::size_t begin, std::size_t end) noexcept override {
    std::byte* const output = HandOver(begin, end);
    if (output != nullptr) std::memcpy(output, request_.buffer + begin, end - begin);
  }
  const std::byte* OnResult(std::size_t begin, std::size_t end, const std::byte* result,
                            bool keep) noexcept override {
    std::byte* const output = HandOver(begin, end);
    if (output != nullptr) std::memcpy(output, result, end - begin);
    if (!keep || output == nullptr) return nullptr;
    if (!packs_) return output;
    std::memcpy(request_.buffer + begin, result, end - begin);
    return request_.buffer + begin;
  }

  const std::vector<std::byte>& source() const { return source_; }
  const std::vector<std::byte>& destination() const { return destination_; }
  // Empty if all that was promised holds for an operation that has succeeded.
  std::string Violation() const {
    if (!violation_.empty()) return violation_;
    const auto once = [](const std::vector<std::uint8_t>& counts) {
      return std::all_of(counts.begin(), counts.end(), [](auto count) { return count == 1; });
    };
    if (!once(taken_)) return "a byte was not taken once";
    if (!once(handed_over_)) return "a byte was not handed over once";
    return "";
  }

 private:
  std::size_t SizeOfExtent(Extent extent) const {
    std::size_t size = 0;
    for (std::size_t node = 0; node < blocks_.size(); ++node) {
      if (extent == Extent::kAll || node == self_) size += blocks_[node].size();
    }
    return size;
  }

  // Where the range of the buffer lies among the extent's blocks; `size` if it is no part of it.
  std::size_t PlaceOf(Extent extent, std::size_t begin, std::size_t end,
                      std::size_t size) noexcept {
    const std::size_t element = SizeOf(request_.data_type);
    std::size_t place = 0;
    for (std::size_t node = 0; node < blocks_.size(); ++node) {
      if (extent == Extent::kOwnPart && node != self_) continue;
      const ByteRange& block = blocks_[node];
      if (begin >= block.begin && begin < end && end <= block.end) {
        if ((begin | end) % element != 0) break;
        return place + (begin - block.begin);
      }
      place += block.size();
    }
    violation_ = absl::StrCat("range ", begin, "..", end, " is no part of the node's data");
    return size;
  }

  const std::byte* Take(std::size_t begin, std::size_t end) noexcept {
    if (refusals_ > 0) {
      --refusals_;
      return nullptr;
    }
    const std::size_t place = PlaceOf(TraitsOf(request_.kind).input, begin, end, source_.size());
    if (place == source_.size()) return request_.buffer;
    for (std::size_t i = place; i < place + (end - begin); ++i) ++taken_[i];
    return &source_[place];
  }
  std::byte* HandOver(std::size_t begin, std::size_t end) noexcept {
    const std::size_t place =
        PlaceOf(TraitsOf(request_.kind).output, begin, end, destination_.size());
    if (place == destination_.size()) return nullptr;
    for (std::size_t i = place; i < place + (end - begin); ++i) ++handed_over_[i];
    return &destination_[place];
  }
  void Combine(const std::byte* input, const std::byte* partial, std::byte* output,
               std::size_t bytes) const noexcept {
    const void* const sources[] = {input, partial};
    ReduceMany(request_.data_type, request_.op, sources, output,
               bytes / SizeOf(request_.data_type));
  }

  CollectiveRequest request_;
  const std::vector<ByteRange> blocks_;
  const std::size_t self_;
  int refusals_;
  const bool packs_;
  std::vector<std::byte> source_;
  std::vector<std::byte> destination_;
  std::vector<std::uint8_t> taken_;        // by byte of the source: how often
  std::vector<std::uint8_t> handed_over_;  // by byte of the destination: how often
  std::string violation_;
};

// Small integers, so that sums are exact in every type and order.
template <typename T>
T PartElement(std::size_t node, std::size_t i) {
  return static_cast<T>((i * 7 + node * 3 + 1) % 5);
}

// One operation of a kind with parts on all nodes: every node's data, and what must come of it.
template <typename T>
class PartedOperation {
 public:
  // Elements of each node's block, by node.
  PartedOperation(OperationId id, CollectiveKind kind, DataType type, ReduceOp op,
                  const std::vector<std::size_t>& counts, std::size_t gap, int refusals, bool packs)
      : kind_(kind), op_(op), blocks_(BlocksOf(counts, sizeof(T), gap)) {
    const std::size_t bytes = blocks_.back().end;
    for (std::size_t node = 0; node < counts.size(); ++node) {
      buffers_.emplace_back(bytes + 1, std::byte{0xDD});
      CollectiveRequest request;
      request.id = id;
      request.kind = kind;
      request.data_type = type;
      request.op = op;
      request.element_count = bytes / sizeof(T);
      request.blocks = blocks_;
      request.buffer = buffers_.back().data();
      accessor_.push_back(
          std::make_unique<PartAccessor>(request, blocks_, node, SourceOf(node), refusals, packs));
    }
  }

  CollectiveRequest Request(int node) { return at(node).Request(); }
  const std::vector<ByteRange>& blocks() const { return blocks_; }

  // Empty if the node has what it should have, and nothing else has changed.
  std::string ProblemOf(int node) {
    PartAccessor& accessor = at(node);
    if (const std::string violation = accessor.Violation(); !violation.empty()) return violation;
    if (accessor.source() != SourceOf(static_cast<std::size_t>(node))) return "its input changed";
    if (accessor.destination() != ResultOf(static_cast<std::size_t>(node))) return "a wrong result";
    if (buffers_[static_cast<std::size_t>(node)].back() != std::byte{0xDD}) return "beyond the end";
    return "";
  }

 private:
  PartAccessor& at(int node) { return *accessor_[static_cast<std::size_t>(node)]; }

  template <typename Value>
  std::vector<std::byte> Collect(Extent extent, std::size_t self, Value value) const {
    std::vector<std::byte> bytes;
    for (std::size_t node = 0; node < blocks_.size(); ++node) {
      if (extent == Extent::kOwnPart && node != self) continue;
      for (std::size_t at = blocks_[node].begin; at < blocks_[node].end; at += sizeof(T)) {
        const T element = value(node, at / sizeof(T));
        const auto* const first = reinterpret_cast<const std::byte*>(&element);
        bytes.insert(bytes.end(), first, first + sizeof(T));
      }
    }
    return bytes;
  }
  std::vector<std::byte> SourceOf(std::size_t self) const {
    return Collect(TraitsOf(kind_).input, self,
                   [self](std::size_t, std::size_t i) { return PartElement<T>(self, i); });
  }
  std::vector<std::byte> ResultOf(std::size_t self) const {
    return Collect(TraitsOf(kind_).output, self, [this](std::size_t owner, std::size_t i) {
      if (!TraitsOf(kind_).combines) return PartElement<T>(owner, i);
      T result = PartElement<T>(0, i);
      for (std::size_t node = 1; node < blocks_.size(); ++node) {
        const T next = PartElement<T>(node, i);
        result = op_ == ReduceOp::kMax ? std::max(result, next) : static_cast<T>(result + next);
      }
      return result;
    });
  }

  const CollectiveKind kind_;
  const ReduceOp op_;
  const std::vector<ByteRange> blocks_;
  std::vector<std::vector<std::byte>> buffers_;
  std::vector<std::unique_ptr<PartAccessor>> accessor_;
};

}  // namespace ringd

#endif  // RINGD_TESTS_BACKENDS_PART_ACCESSOR_H_
