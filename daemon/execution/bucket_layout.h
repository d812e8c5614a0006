// How the tensors of a bucket lie in the fusion buffer.
#ifndef RINGD_DAEMON_EXECUTION_BUCKET_LAYOUT_H_
#define RINGD_DAEMON_EXECUTION_BUCKET_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/block_map.h"
#include "daemon/schedule/protocol/tensor_meta.h"
#include "proto/operations/operation_traits.h"
#include "proto/reduce/tensor_scaling.h"
#include "proto/types/collective_kind.h"
#include "proto/types/data_type.h"
#include "proto/types/ids.h"
#include "proto/types/reduce_op.h"

namespace ringd {

// A communicator's ranks: by node, in the ring's order, and within a node by local rank.
using RanksByNode = std::vector<std::vector<Rank>>;

// Where each tensor of a bucket lies. Equal on all nodes, since it follows from the metas and the
// ranks' places alone.
//
// The buffer is made of sections. Of most kinds a section is a tensor. Of a kind with parts it is
// one rank's part of a tensor, and the buffer has a block for each node: of every tensor, the parts
// of the node's ranks. So a node's block is in one place, wherever its ranks' parts lie in the
// tensors.
//
// Each section begins at a multiple of kAlignment. What lies between two of a block, or of tensors,
// is moved, too, and means nothing.
class BucketLayout {
 public:
  static constexpr std::size_t kAlignment = 64;
  static constexpr std::int32_t kAllMembers = -1;

  struct Section {
    std::size_t begin = 0;  // bytes from the buffer's start
    std::size_t bytes = 0;
    TensorScaling scaling;
    std::size_t tensor = 0;  // position in the bucket
    std::size_t offset = 0;  // bytes from the tensor's start
    // The local rank whose part it is, on its node; or it is a tensor.
    std::int32_t owner = kAllMembers;

    std::size_t end() const noexcept { return begin + bytes; }
  };

  // `metas` can be fused (CanFuse) and there is at least one; the parts of each, if it has any, are
  // as many as there are ranks.
  BucketLayout(std::span<const TensorMeta* const> metas, const RanksByNode& ranks);

  CollectiveKind kind() const noexcept { return kind_; }
  const OperationTraits& traits() const noexcept { return TraitsOf(kind_); }
  DataType data_type() const noexcept { return data_type_; }
  ReduceOp op() const noexcept { return op_; }
  std::size_t bytes() const noexcept { return bytes_; }
  std::size_t payload_bytes() const noexcept { return payload_bytes_; }  // without the gaps
  // In the order in which they lie. Without parts, one for each tensor, by its position.
  std::span<const Section> sections() const noexcept { return sections_; }
  // By node, of kinds with parts; else empty.
  std::span<const ByteRange> blocks() const noexcept { return blocks_; }

 private:
  // Of each rank, the elements of the tensor that come before its part.
  static std::vector<std::size_t> OffsetsOf(const TensorMeta& meta, std::size_t rank_count);
  // Puts it behind all others.
  void Append(Section section);

  CollectiveKind kind_;
  DataType data_type_;
  ReduceOp op_;
  std::size_t bytes_ = 0;
  std::size_t payload_bytes_ = 0;
  std::vector<Section> sections_;
  std::vector<ByteRange> blocks_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_EXECUTION_BUCKET_LAYOUT_H_
