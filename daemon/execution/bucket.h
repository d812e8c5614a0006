// Tensors moved as one collective: the passes over memory between the local ranks' arenas and the
// fusion buffer.
#ifndef RINGD_DAEMON_EXECUTION_BUCKET_H_
#define RINGD_DAEMON_EXECUTION_BUCKET_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "daemon/execution/bucket_layout.h"
#include "proto/reduce/reduce.h"
#include "proto/types/data_type.h"

namespace ringd {

// One local rank's memory for one tensor of a bucket. What the kind's extents say is in each: all
// of the tensor, or the rank's part alone.
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
// the range's. What is sources and destinations follows from the kind's traits: all members' or the
// owner's alone. Of what the owners alone give or get, only this node's block may be asked for.
//
// Results that lie in one piece at their destination, since there is one, are left and sent on from
// there. Non-temporal stores where nobody reads the result soon.
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
  // All members' sources, combined (or the root's or owners', copied) into `buffer`.
  void Pack(std::byte* buffer, std::size_t begin, std::size_t end) const noexcept;
  // `buffer` becomes `partial` op all members' sources.
  void Add(std::byte* buffer, std::size_t begin, std::size_t end,
           const std::byte* partial) const noexcept;
  // `partial` op all members' sources, scaled, into all destinations; and into `buffer`, unless the
  // result lies in one piece at its destination. Returns where it does. Of what owners alone get
  // nothing goes into `buffer`, since nobody sends it on.
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
  // What a pass is at: some of a section.
  struct Piece {
    const BucketLayout::Section& section;
    const TensorBuffers* members;
    std::size_t offset;  // bytes within the section
    std::size_t elements;

    std::size_t begin() const noexcept { return section.begin + offset; }  // in the bucket
  };
  // Members [first, last).
  struct Members {
    std::size_t first;
    std::size_t last;

    std::size_t count() const noexcept { return last - first; }
  };

  // Calls visit(piece) for each section's overlap with the range.
  template <typename Visit>
  void ForEachOverlap(std::size_t begin, std::size_t end, Visit visit) const noexcept;
  // Where it lies in a member's memory, of which there is so much.
  static std::size_t PlaceOf(const Piece& piece, Extent extent) noexcept;
  const std::byte* SourceOf(const Piece& piece, std::size_t member) const noexcept;
  std::byte* DestinationOf(const Piece& piece, std::size_t member) const noexcept;
  // Whose input it is where nothing is combined; null if nobody's here.
  std::optional<std::size_t> GiverOf(const Piece& piece) const noexcept;
  Members ReceiversOf(const Piece& piece) const noexcept;
  // The range as a piece, if one section has all of it.
  std::optional<Piece> OnePiece(std::size_t begin, std::size_t end) const noexcept;
  // Combines `partial`, unless null, and all members' sources.
  void Combine(const Piece& piece, const std::byte* partial, std::span<void* const> destinations,
               Scaling scaling, Streaming streaming) const noexcept;
  // `buffer` becomes what it has op `partial`; scaled, if it is the last.
  void CombineWithSum(std::byte* buffer, std::size_t begin, std::size_t end,
                      const std::byte* partial, bool last) const noexcept;
  // Combines the same into all receivers' destinations, postscaled, and `further`, unless null.
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
