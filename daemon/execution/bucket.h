// Tensors moved as one collective: how they lie in the fusion buffer, and the passes over memory
// between the local ranks' arenas and that buffer.
#ifndef RINGD_DAEMON_EXECUTION_BUCKET_H_
#define RINGD_DAEMON_EXECUTION_BUCKET_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "daemon/schedule/tensor_meta.h"
#include "proto/reduce/reduce.h"
#include "proto/types/collective_kind.h"
#include "proto/types/data_type.h"
#include "proto/types/reduce_op.h"

namespace ringd {

// Where each tensor of a bucket lies. Equal on all nodes, since it follows from the metas alone: each
// tensor begins at a multiple of kTensorAlignment; what lies between is reduced too and means nothing.
class BucketLayout {
 public:
  static constexpr std::size_t kTensorAlignment = 64;

  struct Tensor {
    std::size_t begin = 0;  // bytes from the buffer's start
    std::size_t bytes = 0;
    double prescale = 1.0;
    Scaling postscale;  // the division of an average included
  };

  // `metas` can be fused (CanFuse) and there is at least one. `rank_count`: of the whole communicator.
  BucketLayout(std::span<const TensorMeta* const> metas, int rank_count);

  CollectiveKind kind() const noexcept { return kind_; }
  DataType data_type() const noexcept { return data_type_; }
  ReduceOp op() const noexcept { return op_; }
  std::size_t bytes() const noexcept { return bytes_; }
  std::size_t payload_bytes() const noexcept { return payload_bytes_; }  // without the gaps
  std::span<const Tensor> tensors() const noexcept { return tensors_; }

 private:
  CollectiveKind kind_;
  DataType data_type_;
  ReduceOp op_;
  std::size_t bytes_ = 0;
  std::size_t payload_bytes_ = 0;
  std::vector<Tensor> tensors_;
};

// One local rank's memory for one tensor of a bucket.
struct TensorBuffers {
  const std::byte* source = nullptr;
  std::byte* destination = nullptr;
};

// The memory of a bucket's tensors on this node: entry tensor * member_count + member.
//
// The three passes take a range of the bucket, [begin, end) in bytes and whole elements; tensors are
// touched only where they overlap it. Non-temporal stores where nobody reads the result soon.
//
// Thread safety: the passes may run at once on ranges that do not overlap.
class BucketMemory {
 public:
  // `root_member`: whose source is broadcast; -1 if it is not on this node. Ignored by other kinds.
  BucketMemory(const BucketLayout& layout, int member_count, std::vector<TensorBuffers> buffers,
               int root_member);

  // All members' sources, combined (or the root's, copied) into `buffer`.
  void Pack(std::byte* buffer, std::size_t begin, std::size_t end) const noexcept;
  // From `buffer`, scaled, into all members' destinations.
  void Unpack(const std::byte* buffer, std::size_t begin, std::size_t end) const noexcept;
  // From all members' sources to all members' destinations at once: the whole of a one-node collective.
  void Direct(std::size_t begin, std::size_t end) const noexcept;

 private:
  // Calls visit(tensor, its index, first byte within it, elements) for each overlap with the range.
  template <typename Visit>
  void ForEachOverlap(std::size_t begin, std::size_t end, Visit visit) const noexcept;
  void Combine(const BucketLayout::Tensor& tensor, std::size_t index, std::size_t offset,
               std::size_t elements, std::span<void* const> destinations, Scaling scaling,
               Streaming streaming) const noexcept;

  const BucketLayout& layout_;
  std::size_t member_count_;
  Streaming streaming_;  // of what goes to the destinations
  std::vector<TensorBuffers> buffers_;
  int root_member_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_EXECUTION_BUCKET_H_
