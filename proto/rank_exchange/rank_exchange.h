// The rank exchange: small operations of a job over several nodes that waiting ranks carry out
// themselves, over connections that the ringds have opened and handed to them. No daemon stands in
// between (ringd may take a turn as driver).
//
// Which operations: those that a rank is about to wait for (ringd_submit_awaited), of at most the
// segment's limit. They are known by their key: a signature of the tensor's name and description,
// and the how manieth submission of a tensor of that name this is at the rank. So ranks need no
// agreement on an order. A rank contributes to a key at most once, and either here or, as an
// ordinary submission, to ringd; the way through ringd is always open, and is where a rank goes
// when the rank exchange *gives the operation up*.
//
//   members of a node ──▶ cell ──▶ the last one combines them
//   a node whose members and children (rank_exchange_tree.h) are all there combines its own input
//   and theirs, in the order of the nodes:
//        not the hub: sends kInput to its parent                cell kGathers ─▶ kSent
//        the hub: has the result                                     kGathers ─▶ kDone
//   kResult: from the hub down the tree                                  kSent ─▶ kDone
//   each member copies the result, and the last one frees the cell.
//
// Which tree: the flat one up to the segment's flat_bytes, the k-nomial one beyond. It follows from
// the operation's bytes at each node for itself; nodes that differ in those find out by what they
// bring.
//
// A pair. Of two nodes each sends its input to the other, and who has sent its own and got the
// other's combines them: the same numbers in the same order, one message's way after the later of
// the two. Each answers an input with its own, or with kGiveUp.
//
// Giving up. What some rank does not bring here (it comes late, submits to ringd, is in another
// operation, describes the tensor differently, has died) is given up after kPatience, and all ranks
// that have contributed submit it to ringd, which knows how to wait, whom to name, and when to
// fail. Only the hub can complete an operation of which a node's input has been sent; so:
//   - Before its input is sent (kGathers) a node gives up by itself, and tells its children. It
//     then never sends it, since a rank that has gone the other way never contributes to this key
//     again; so neither its parent nor the hub can complete it.
//   - After that (kSent) only the parent's decision counts: kResult or kGiveUp. A parent that has
//     sent its own input has no choice either, and passes on what it hears. So each cell becomes
//     one of the two, once, and what it is goes to all children; what comes too late for that, or
//     found no room, is answered with kGiveUp.
//   - Of a pair each decides once: it sends its input, or kGiveUp (which it may repeat). The
//     operation is complete if both have sent their inputs, and each knows that as soon as it has
//     the other's; else each hears, or has said, kGiveUp. Who has sent its input has no choice any
//     more, so none can complete what the other gives up.
// So no operation is completed at one rank and given up at another. A node remembers what was given
// up until all its members have come by or the cell is needed; if it has been forgotten too early,
// it is given up once more.
//
// The driver. One of those who wait takes in what arrives, and takes it away from the others' time:
// it receives into the inboxes and advances the cells. ringd takes a turn now and then
// (RankExchangeWatch), so that operations to which none of the hub's ranks has come are given up,
// too. Cells change under one lock, held for copies of a tensor or two and for sending.
//
// A connection that breaks, or carries nonsense, ends the rank exchange of the job
// (RankExchangeControl::broken): whoever sees it says kStop to the hub, and the hub to all.
// Nothing begins any more, what has not been sent is given up, and what has been is still decided
// by the parent's decision, as ever; with its kStop the hub gives up what it has not answered. A
// node whose parent is lost can't know that decision, nor tell it: it hangs up on its children, so
// that they know that, too, and its ringd, which sees it wait (kSent), fails the job.
//
// Floating-point results: local ranks are combined in the order of their local ranks, then nodes in
// theirs, and types of 16 and 8 bits are rounded once in each. That gives the bits of the way
// through ringd's flat all-reduce. In the k-nomial tree each child stands for all below it, rounded
// once more.
//
// Trust: the members of a node are one user's processes with one job secret. Each, and ringd,
// checks what leads anywhere (indices, lengths) before it is used; what another process can write
// besides is numbers to be added. The descriptors are shared, with their flags and options, so no
// call of ringd's here relies on them: it says itself that it does not wait, it writes no eventfd,
// and it never waits for a lock that a member holds.
#ifndef RINGD_PROTO_RANK_EXCHANGE_RANK_EXCHANGE_H_
#define RINGD_PROTO_RANK_EXCHANGE_RANK_EXCHANGE_H_

#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/clock.h"
#include "proto/base/unique_fd.h"
#include "proto/rank_exchange/rank_exchange_segment.h"
#include "proto/reduce/reduce.h"
#include "proto/types/data_type.h"
#include "proto/types/reduce_op.h"

namespace ringd {

// Names an operation on all ranks.
struct RankExchangeKey {
  std::uint64_t signature = 0;  // RankExchangeSignature
  std::uint64_t occurrence =
      0;  // 0, 1, 2, ... by the rank's submissions of that tensor, whichever way
};

// A hash of a tensor's name and description, the same on all nodes: FNV-1a of 64 bits (Fowler,
// Noll, Vo). Tensors that share one by accident are given up, or, if alike in bytes, type and
// operator, mixed up: with 2^-64 for each pair that is in flight at once.
std::uint64_t RankExchangeSignature(std::span<const char> description) noexcept;

// What a member brings.
struct RankExchangeContribution {
  RankExchangeKey key;
  DataType data_type = DataType::kUint8;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1;
  // limit_bytes() at most; no elements: a barrier. Borrows the memory.
  const void* source = nullptr;
  std::uint64_t element_count = 0;

  std::uint64_t bytes() const noexcept { return element_count * SizeOf(data_type); }
};

enum class RankExchangeOutcome : std::uint8_t {
  kPending = 0,
  kCompleted,
  kGivenUp,  // submit it to ringd
};

// One process's part in the rank exchange of its node.
//
// Thread safety: any thread may call anything, but for what needs the driver's role: the thread
//   that has it.
// Ownership: owns the connections; the segment must stay mapped.
class RankExchange {
 public:
  // How long an operation may lack somebody before it is given up. Longer than ranks differ in an
  // ordinary step, shorter than anybody wants to wait before he hears of a stall.
  static constexpr std::chrono::milliseconds kPatience{100};

  // `self`: the member, or kRankExchangeRingd. `connections` by node, connected TCP sockets: those
  // to RankExchangeView::Neighbours. In the place of the own node: an eventfd, the same for all
  // processes of the node, by which members wake the driver.
  //   kInvalidArgument: a connection is missing. kInternal: the kernel refuses an epoll descriptor.
  static absl::StatusOr<std::unique_ptr<RankExchange>> Create(RankExchangeView view,
                                                              std::uint32_t self,
                                                              std::vector<UniqueFd> connections);
  // Takes the option to linger off: the other processes may have set it. Even so close() may wait;
  // nudge it where that matters.
  ~RankExchange();
  RankExchange(const RankExchange&) = delete;
  RankExchange& operator=(const RankExchange&) = delete;

  const RankExchangeView& view() const noexcept { return view_; }
  // False once it is broken: Contribute then always gives up.
  bool Usable() const noexcept;
  RankExchangeBreak WhyBroken() const noexcept;

  // Hands over this member's part; the source is copied. kPending and kCompleted: the operation is
  // in `cell`, and Look, Take and Depart have to be called until it is over. kGivenUp: it is over
  // already. Blocks for sending and for the lock, at most kLockPatience.
  RankExchangeOutcome Contribute(const RankExchangeContribution& contribution, std::uint32_t& cell);
  RankExchangeOutcome Look(std::uint32_t cell) const noexcept;
  // After kCompleted: copies the result, of as many elements as were brought, scaled, and ends this
  // member's part.
  void Take(std::uint32_t cell, DataType data_type, void* destination, std::uint64_t element_count,
            Scaling postscale) noexcept;
  // After kGivenUp (as Look said): ends this member's part.
  void Depart(std::uint32_t cell) noexcept;
  // Sleeps until the cell's operation is over, there is no driver, or `most` has passed.
  void Sleep(std::uint32_t cell, std::chrono::nanoseconds most) const noexcept;

  // The driver's role. False: somebody else has it.
  [[nodiscard]] bool BecomeDriver() noexcept;
  // Others who wait are woken, to take it.
  void StopDriving() noexcept;
  // Takes in what has come; if nothing has, waits for it, for up to `most` (a node with one
  // neighbour, of more than two nodes, for kTurn); gives up what is older than kPatience. True if
  // anything has come. 0: does not wait, and a member takes in only what is waited for in some
  // cell. Requirement: the driver's role.
  bool Drive(std::chrono::milliseconds most) noexcept;
  static constexpr std::chrono::milliseconds kTurn{20};

 private:
  static constexpr std::chrono::milliseconds kLockPatience{50};
  // For a connection that takes no more: another process has stopped reading.
  static constexpr std::chrono::milliseconds kSendPatience{50};
  static constexpr std::uint32_t kNoCell = UINT32_MAX;

  RankExchange(RankExchangeView view, std::uint32_t self, std::vector<UniqueFd> connections,
               UniqueFd epoll);

  std::uint32_t own_name() const noexcept;
  std::uint64_t all_members() const noexcept;
  bool IsOverdue(std::uint32_t cell, std::uint64_t now_ns) const noexcept;
  void Leave(std::uint32_t cell) noexcept;

  // These need the lock.
  void End(std::uint32_t cell, RankExchangeCellState state) noexcept;
  // The second half of End, for who has stored the state before it told other nodes. The members
  // may have left meanwhile: then the cell is free, and nobody else's as long as the lock is held.
  void Announce(std::uint32_t cell, RankExchangeCellState state) noexcept;
  std::uint32_t FindCell(const RankExchangeKey& key) const noexcept;
  std::uint32_t MakeCell(const RankExchangeKey& key, std::size_t bytes) noexcept;
  void CombineMembers(std::uint32_t cell, const RankExchangeContribution& last) noexcept;
  // If nobody lacks any more: combines what is there, and completes it or sends it on. False:
  // somebody does. The input of node `brought_by` is `brought`, that of the others in the cell.
  bool ForwardIfWhole(std::uint32_t cell, std::uint32_t brought_by, const void* brought) noexcept;
  // ... and tells the children, or the other of a pair.
  void GiveUp(std::uint32_t cell) noexcept;
  void Break(RankExchangeBreak why) noexcept;
  // What the hub's kStop says of operations that have been sent to it.
  void GiveUpUnanswered() noexcept;
  void HangUp(std::uint32_t node) noexcept;
  // Keeps RankExchangeControl::awaited up, after the cells have changed.
  void ShowAwaited() noexcept;
  // kNone: all of it. Else nothing will be sent to that node any more.
  RankExchangeBreak Send(std::uint32_t node, RankExchangeMessageKind kind,
                         const RankExchangeKey& key, const iovec& payload) noexcept;
  RankExchangeBreak SendInput(std::uint32_t to, std::uint32_t cell,
                              const RankExchangeContribution& last, bool as_it_lies) noexcept;
  // To all of them to whom there still is a connection.
  void SendTo(RankExchangeNodeSet nodes, RankExchangeMessageKind kind, const RankExchangeKey& key,
              const iovec& payload) noexcept;
  void TakeMessages(std::uint32_t node) noexcept;
  bool OnMessage(std::uint32_t node, const RankExchangeMessage& message,
                 std::span<const std::byte> payload) noexcept;
  bool OnInput(std::uint32_t node, const RankExchangeKey& key,
               std::span<const std::byte> payload) noexcept;
  bool OnResult(std::uint32_t node, const RankExchangeKey& key,
                std::span<const std::byte> payload) noexcept;
  bool OnGiveUp(std::uint32_t node, const RankExchangeKey& key) noexcept;
  bool OnStop(std::uint32_t node) noexcept;

  // These need the driver's role.
  struct Heard {
    bool anything = false;
    RankExchangeBreak end;  // of a connection
  };
  Heard Receive(std::chrono::milliseconds most) noexcept;
  void ReceiveFromAny(std::chrono::milliseconds most, Heard& heard) noexcept;
  void ReceiveFrom(std::uint32_t node, int flags, Heard& heard) noexcept;
  bool AnyWork() const noexcept;
  // From whom some cell lacks a message that can still come.
  RankExchangeNodeSet Awaited() const noexcept;
  // Once it is broken: whether this node still waits for a decision, or may be asked for one.
  bool MayBeAsked() const noexcept;

  const RankExchangeView view_;
  const std::uint32_t self_;
  const RankExchangeNodeSet neighbours_;
  const std::vector<UniqueFd> connections_;
  const UniqueFd epoll_;  // not of a node with one neighbour, unless it is one of a pair or the hub
};

}  // namespace ringd

#endif  // RINGD_PROTO_RANK_EXCHANGE_RANK_EXCHANGE_H_
