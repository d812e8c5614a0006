// Tensors moved as one collective: how they lie in the fusion buffer, and the passes over memory
// between the local ranks' arenas and that buffer.
#ifndef RINGD_DAEMON_EXECUTION_BUCKET_H_
#define RINGD_DAEMON_EXECUTION_BUCKET_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "daemon/schedule/protocol/tensor_meta.h"
#include "proto/reduce/reduce.h"
#include "proto/reduce/tensor_scaling.h"
#include "proto/types/collective_kind.h"
#include "proto/types/data_type.h"
#include "proto/types/reduce_op.h"

namespace ringd {

// Where each tensor of a bucket lies. Equal on all nodes, since it follows from the metas alone:
// each tensor begins at a multiple of kTensorAlignment; what lies between is reduced too and means
// nothing.
class BucketLayout {
 public:
  static constexpr std::size_t kTensorAlignment = 64;

  struct Tensor {
    std::size_t begin = 0;  // bytes from the buffer's start
    std::size_t bytes = 0;
    TensorScaling scaling;
  };

  // `metas` can be fused (CanFuse) and there is at least one. `rank_count` and `node_count`: of the
  // whole communicator.
  BucketLayout(std::span<const TensorMeta* const> metas, int rank_count, int node_count);

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

// Where a range's result lies until it is with all ranks.
enum class ResultPlace : std::uint8_t {
  kBuffer,
  kFirstMember,  // at the first member's destinations
};

// The memory of a bucket's tensors on this node: entry tensor * member_count + member.
//
// The passes take a range of the bucket, [begin, end) in bytes and whole elements; tensors are
// touched only where they overlap it. `buffer` is the whole bucket's; a partial sum or result is
// the range's. Results that lie in one piece at their destination, since there is one member and
// one tensor, are left and sent on from there. Non-temporal stores where nobody reads the result
// soon.
//
// Thread safety: the passes may run at once on ranges that do not overlap.
class BucketMemory {
 public:
  // `root_member`: whose source is broadcast; -1 if it is not on this node. Ignored by other kinds.
  BucketMemory(const BucketLayout& layout, int member_count, std::vector<TensorBuffers> buffers,
               int root_member);

  std::size_t member_count() const noexcept { return member_count_; }

  // The node's input where it lies in one piece as it is; else null, and it must be packed.
  const std::byte* Source(std::size_t begin, std::size_t end) const noexcept;
  // All members' sources, combined (or the root's, copied) into `buffer`.
  void Pack(std::byte* buffer, std::size_t begin, std::size_t end) const noexcept;
  // `buffer` becomes `partial` op all members' sources.
  void Add(std::byte* buffer, std::size_t begin, std::size_t end,
           const std::byte* partial) const noexcept;
  // `partial` op all members' sources, scaled, into all destinations; and into `buffer`, unless the
  // result lies in one piece at its destination. Returns where it does.
  const std::byte* AddLast(std::byte* buffer, std::size_t begin, std::size_t end,
                           const std::byte* partial) const noexcept;
  // The same two where `buffer` has the sources combined already, from Pack(). Their bits are the
  // same, but for the types of which SumsExactly() is false.
  void AddToSum(std::byte* buffer, std::size_t begin, std::size_t end,
                const std::byte* partial) const noexcept;
  const std::byte* AddLastToSum(std::byte* buffer, std::size_t begin, std::size_t end,
                                const std::byte* partial) const noexcept;
  // What the two leave in `buffer`, and nowhere else: CopyToMembers() does the rest.
  void AddLastInBuffer(std::byte* buffer, std::size_t begin, std::size_t end,
                       const std::byte* partial) const noexcept;
  void AddLastToSumInBuffer(std::byte* buffer, std::size_t begin, std::size_t end,
                            const std::byte* partial) const noexcept;
  // False of the floats narrower than float32, which one pass combines in float32 and rounds once.
  static bool SumsExactly(DataType type) noexcept;
  // Scales what is in `buffer` and copies it into all destinations.
  void Finish(std::byte* buffer, std::size_t begin, std::size_t end) const noexcept;
  // Copies a result, scaled already, into all destinations. If it is to be kept, returns where it
  // lies in one piece, through `buffer` if need be; else null.
  const std::byte* Distribute(std::byte* buffer, std::size_t begin, std::size_t end,
                              const std::byte* result, bool keep) const noexcept;
  // The same in two steps: `result` to one place, and from there to the destinations of members
  // [first, last) where it is not yet.
  void CopyToFirstMember(std::size_t begin, std::size_t end,
                         const std::byte* result) const noexcept;
  void CopyToMembers(const std::byte* buffer, std::size_t begin, std::size_t end, ResultPlace place,
                     std::size_t first, std::size_t last) const noexcept;

 private:
  // Calls visit(piece) for each tensor's overlap with the range.
  template <typename Visit>
  void ForEachOverlap(std::size_t begin, std::size_t end, Visit visit) const noexcept;
  // The part of a tensor that a pass is at.
  struct Piece {
    const BucketLayout::Tensor& tensor;
    const TensorBuffers* members;
    std::size_t offset;  // bytes within the tensor
    std::size_t elements;

    std::size_t begin() const noexcept { return tensor.begin + offset; }  // in the bucket
  };
  // The range as a piece, if one tensor has all of it.
  std::optional<Piece> OnePiece(std::size_t begin, std::size_t end) const noexcept;
  // Combines `partial`, unless null, and all members' sources.
  void Combine(const Piece& piece, const std::byte* partial, std::span<void* const> destinations,
               Scaling scaling, Streaming streaming) const noexcept;
  // `buffer` becomes what it has op `partial`; scaled, if it is the last.
  void CombineWithSum(std::byte* buffer, std::size_t begin, std::size_t end,
                      const std::byte* partial, bool last) const noexcept;
  // Combines the same into all destinations, postscaled, and `further`, unless null.
  void CombineToAll(const Piece& piece, const std::byte* partial, std::byte* further,
                    Streaming streaming) const noexcept;

  const BucketLayout& layout_;
  std::size_t member_count_;
  Streaming streaming_;  // of what goes to the destinations
  std::vector<TensorBuffers> buffers_;
  int root_member_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_EXECUTION_BUCKET_H_
