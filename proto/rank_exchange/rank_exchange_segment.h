// The memory by which the ranks of a node take part in the rank exchange of a job over several
// nodes.
//
//   RankExchangeHeader
//   RankExchangeControl
//   RankExchangeMember    x members
//   RankExchangeCell      x kRankExchangeCells
//   inboxes           x nodes
//   payloads          for each cell: one for each member, one for each node, the result
//
// Members are the node's ranks in the order of their local ranks. ringd makes the segment; who may
// write what, and when, is told in rank_exchange.h. Nothing here is believed that could lead out of
// the segment.
#ifndef RINGD_PROTO_RANK_EXCHANGE_RANK_EXCHANGE_SEGMENT_H_
#define RINGD_PROTO_RANK_EXCHANGE_RANK_EXCHANGE_SEGMENT_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "proto/base/cache_line.h"
#include "proto/base/doorbell.h"
#include "proto/rank_exchange/rank_exchange_message.h"
#include "proto/rank_exchange/rank_exchange_tree.h"

namespace ringd {

inline constexpr std::uint64_t kRankExchangeMagic = 0x31544650'44474e52;  // "RNGDPFT1"
inline constexpr std::uint32_t kRankExchangeSegmentVersion = 7;

// A tensor's bytes in the rank exchange. The segment's limit is this or less; between more than two
// nodes, where inputs and results of several go over one node's line, kRankExchangeMostBytesOfMany
// or less.
inline constexpr std::size_t kRankExchangeMostBytes = 40960;
inline constexpr std::size_t kRankExchangeMostBytesOfMany = 8192;
// Operations of one node at a time: one for each thread that waits, more have to take the other
// way.
inline constexpr std::uint32_t kRankExchangeCells = 8;
inline constexpr std::uint32_t kRankExchangeMostMembers = 64;  // bits of a word
inline constexpr std::uint32_t kRankExchangeMostNodes = 16;    // the hub's work grows with them

struct RankExchangeHeader {
  // Written once by ringd, before any member maps the segment.
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t member_count;
  std::uint32_t node_count;
  std::uint32_t node_index;
  std::uint64_t segment_bytes;
  std::uint64_t limit_bytes;  // of a tensor: larger ones go through ringd
  std::uint64_t flat_bytes;   // ... and those take the k-nomial tree; limit_bytes: none does
  std::uint64_t reserved[2];
};
static_assert(sizeof(RankExchangeHeader) == kCacheLineBytes);

// Whom RankExchangeControl::lock and driver name.
inline constexpr std::uint32_t kRankExchangeNobody = 0;  // a member m is m + 1
inline constexpr std::uint32_t kRankExchangeRingd = UINT32_MAX;

struct RankExchangeControl {
  alignas(kCacheLineBytes) std::atomic<std::uint32_t> lock;  // who holds it
  // 0, or RankExchangeBreak::ToWord: nothing begins any more.
  std::atomic<std::uint32_t> broken;
  std::atomic<std::uint32_t> closed;  // RankExchangeNodeSet: to whom the connection has ended
  alignas(kCacheLineBytes) std::atomic<std::uint32_t> driver;  // who takes in what arrives
  // From whom some cell lacks a message (RankExchangeNodeSet). Written under the lock.
  std::atomic<std::uint32_t> awaited;
  std::atomic<std::uint64_t> turns;  // of drivers: grows as long as they live
  // Operations of this node that ended well, and that went the other way. Written under the lock.
  std::atomic<std::uint64_t> completed;
  std::atomic<std::uint64_t> given_up;
};
static_assert(sizeof(RankExchangeControl) == 2 * kCacheLineBytes);

// Why the rank exchange is no longer used.
struct RankExchangeBreak {
  enum class Reason : std::uint8_t {
    kNone = 0,
    kConnection,  // `error` with the node; 0: it hung up
    kProtocol,    // the node has sent what makes no sense
    kStopped,     // the node has said so
  };
  Reason reason = Reason::kNone;
  std::uint8_t node = 0;
  std::uint16_t error = 0;  // an errno

  constexpr std::uint32_t ToWord() const noexcept {
    return static_cast<std::uint32_t>(reason) | std::uint32_t{node} << 8 |
           std::uint32_t{error} << 16;
  }
  static constexpr RankExchangeBreak FromWord(std::uint32_t word) noexcept {
    return {static_cast<Reason>(word & 0xff), static_cast<std::uint8_t>(word >> 8),
            static_cast<std::uint16_t>(word >> 16)};
  }
};

// Written by the member; for ringd, which shows it and attributes stalls by it.
struct RankExchangeMember {
  alignas(kCacheLineBytes) std::atomic<std::uint64_t> completed;  // operations in the rank exchange
  std::atomic<std::uint64_t> given_up;                            // that then went the other way
  std::atomic<std::uint64_t> bytes;                               // of tensors completed
  // The oldest operation that it is in: RegisteredNumbers::registration + 1 (0: none), and since
  // when.
  std::atomic<std::uint32_t> registration;
  std::atomic<std::uint64_t> since_ns;
};
static_assert(sizeof(RankExchangeMember) == kCacheLineBytes);

enum class RankExchangeCellState : std::uint32_t {
  kFree = 0,
  kGathers,  // a member is missing, or a child
  kSent,     // the input has been sent: the parent, or the other of a pair, says what becomes of it
  kDone,     // the result is there, for members that have not taken it yet
  kGivenUp,  // for members that have not seen that yet
};

// One operation. What is not atomic is guarded by the lock, and the rest is written under it, but
// for `departed` and the state kFree: the last member that departs stores it.
struct RankExchangeCell {
  Doorbell doorbell;  // members sleep here until `state` says how it ended
  alignas(kCacheLineBytes) std::atomic<RankExchangeCellState> state;
  std::uint32_t bytes;
  std::atomic<std::uint64_t> departed;  // bits of members that have seen the end
  std::uint64_t signature;
  std::uint64_t occurrence;
  std::atomic<std::uint64_t> created_ns;
  std::uint64_t members;  // bits of those that have contributed
  // From whom a message is missing (RankExchangeNodeSet): the children's inputs, the parent's
  // decision; of a pair the other's input.
  RankExchangeNodeSet awaits;
  std::uint8_t data_type;
  std::uint8_t op;
  std::uint16_t reserved;
};
static_assert(sizeof(RankExchangeCell) == 2 * kCacheLineBytes);

// What has come of messages that are not whole yet; of the driver.
struct RankExchangeInbox {
  static constexpr std::size_t kBytes = 2 * (sizeof(RankExchangeMessage) + kRankExchangeMostBytes);
  alignas(kCacheLineBytes) std::uint32_t filled;
  alignas(kCacheLineBytes) std::byte data[kBytes];
};

// What the header says.
struct RankExchangeGeometry {
  std::uint32_t member_count = 0;  // 1 to kRankExchangeMostMembers
  std::uint32_t node_count = 0;    // 2 to kRankExchangeMostNodes
  std::uint32_t node_index = 0;
  std::uint32_t limit_bytes = 0;  // kRankExchangeMostBytes at most
  std::uint32_t flat_bytes = 0;   // limit_bytes at most, and that of two nodes
};

// The way to everything behind the header. Does not own the memory.
//
// Thread safety: immutable; what it leads to is told above.
class RankExchangeView {
 public:
  RankExchangeView() noexcept = default;
  RankExchangeView(std::byte* base, const RankExchangeGeometry& geometry) noexcept
      : base_(base), geometry_(geometry), children_{} {
    for (const RankExchangeTree tree : {RankExchangeTree::kFlat, RankExchangeTree::kKnomial}) {
      children_[static_cast<std::size_t>(tree)] =
          is_pair() ? NodeBit(1 - node_index()) : ChildrenIn(tree, node_index(), node_count());
    }
  }

  // What the header said when it was checked: what others write there later is not looked at.
  std::uint32_t member_count() const noexcept { return geometry_.member_count; }
  std::uint32_t node_count() const noexcept { return geometry_.node_count; }
  std::uint32_t node_index() const noexcept { return geometry_.node_index; }
  std::uint32_t limit_bytes() const noexcept { return geometry_.limit_bytes; }
  std::uint32_t flat_bytes() const noexcept { return geometry_.flat_bytes; }
  // Node 0 combines what comes last, and tells the others what becomes of an operation.
  bool is_hub() const noexcept { return node_index() == 0; }
  // Two nodes: each sends the other its input, and combines. So each is the other's parent and
  // child.
  bool is_pair() const noexcept { return node_count() == 2; }

  // Which tree an operation takes follows from its bytes.
  bool has_knomial() const noexcept { return flat_bytes() < limit_bytes(); }
  RankExchangeTree TreeOf(std::uint64_t bytes) const noexcept {
    return bytes <= flat_bytes() ? RankExchangeTree::kFlat : RankExchangeTree::kKnomial;
  }
  // Requirement: not of the hub, but for a pair's.
  std::uint32_t Parent(RankExchangeTree tree) const noexcept {
    return is_pair() ? 1 - node_index() : ParentIn(tree, node_index());
  }
  RankExchangeNodeSet Children(RankExchangeTree tree) const noexcept {
    return children_[static_cast<std::size_t>(tree)];
  }
  // To whom this node has a connection.
  RankExchangeNodeSet Neighbours() const noexcept {
    return NeighboursOf(node_index(), node_count(), has_knomial());
  }
  // The most messages that follow each other from a node to the hub.
  std::uint32_t Depth() const noexcept { return DepthOf(TreeOf(limit_bytes()), node_count()); }

  RankExchangeControl& control() const noexcept { return At<RankExchangeControl>(kControlOffset); }
  RankExchangeMember& Member(std::uint32_t member) const noexcept {
    return At<RankExchangeMember>(kMembersOffset + member * sizeof(RankExchangeMember));
  }
  RankExchangeCell& Cell(std::uint32_t cell) const noexcept {
    return At<RankExchangeCell>(CellsOffset(member_count()) + cell * sizeof(RankExchangeCell));
  }
  RankExchangeInbox& Inbox(std::uint32_t node) const noexcept {
    return At<RankExchangeInbox>(InboxesOffset(member_count()) + node * sizeof(RankExchangeInbox));
  }
  std::byte* MemberPayload(std::uint32_t cell, std::uint32_t member) const noexcept {
    return Payload(cell, member);
  }
  std::byte* NodePayload(std::uint32_t cell, std::uint32_t node) const noexcept {
    return Payload(cell, member_count() + node);
  }
  std::byte* Result(std::uint32_t cell) const noexcept {
    return Payload(cell, member_count() + node_count());
  }

  static constexpr std::uint64_t SegmentBytes(std::uint32_t member_count,
                                              std::uint32_t node_count) noexcept {
    return PayloadsOffset(member_count, node_count) + std::uint64_t{kRankExchangeCells} *
                                                          (member_count + node_count + 1) *
                                                          kRankExchangeMostBytes;
  }

 private:
  static constexpr std::uint64_t kControlOffset = sizeof(RankExchangeHeader);
  static constexpr std::uint64_t kMembersOffset = kControlOffset + sizeof(RankExchangeControl);
  static constexpr std::uint64_t CellsOffset(std::uint32_t member_count) noexcept {
    return kMembersOffset + std::uint64_t{member_count} * sizeof(RankExchangeMember);
  }
  static constexpr std::uint64_t InboxesOffset(std::uint32_t member_count) noexcept {
    return CellsOffset(member_count) + kRankExchangeCells * sizeof(RankExchangeCell);
  }
  static constexpr std::uint64_t PayloadsOffset(std::uint32_t member_count,
                                                std::uint32_t node_count) noexcept {
    return InboxesOffset(member_count) + std::uint64_t{node_count} * sizeof(RankExchangeInbox);
  }
  std::byte* Payload(std::uint32_t cell, std::uint32_t index) const noexcept {
    const std::uint64_t per_cell = member_count() + node_count() + 1;
    return base_ + PayloadsOffset(member_count(), node_count()) +
           (cell * per_cell + index) * kRankExchangeMostBytes;
  }
  template <typename T>
  T& At(std::uint64_t offset) const noexcept {
    return *reinterpret_cast<T*>(base_ + offset);
  }

  std::byte* base_ = nullptr;
  RankExchangeGeometry geometry_;
  std::array<RankExchangeNodeSet, 2> children_{};  // by RankExchangeTree
};

// Writes the header into a zeroed segment of RankExchangeView::SegmentBytes. ringd only.
// Requirement: the geometry is within its limits.
RankExchangeView InitializeRankExchangeSegment(std::byte* base,
                                               const RankExchangeGeometry& geometry) noexcept;

// Checks what a member was handed, and makes the view of it.
//   kFailedPrecondition: the versions differ (both are named). kInvalidArgument: it makes no sense.
absl::StatusOr<RankExchangeView> ViewRankExchangeSegment(std::byte* base,
                                                         std::uint64_t mapped_bytes);

}  // namespace ringd

#endif  // RINGD_PROTO_RANK_EXCHANGE_RANK_EXCHANGE_SEGMENT_H_
