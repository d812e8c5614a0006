// How this node carries a communicator's operations on host memory out: chosen once, when the
// communicator is made.
#ifndef RINGD_DAEMON_LANES_LANE_H_
#define RINGD_DAEMON_LANES_LANE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/communicator.h"
#include "daemon/execution/execution.h"
#include "daemon/lanes/channel_time.h"
#include "daemon/lanes/waiting_submission.h"
#include "daemon/schedule/link/measurements.h"
#include "daemon/schedule/node/node_actions.h"
#include "daemon/schedule/protocol/messages.h"
#include "daemon/schedule/protocol/tensor_meta.h"
#include "proto/base/clock.h"
#include "proto/base/unique_fd.h"
#include "proto/types/ids.h"

namespace ringd {

class RankExchangeWatch;

// Of one member's submissions.
struct MemberCounters {
  std::uint64_t submitted = 0;
  std::uint64_t ended = 0;
  std::uint64_t failed = 0;
  std::uint64_t bytes = 0;  // of tensors that ended well
};

// What a lane tells its communicator, and asks it.
class LaneEvents {
 public:
  virtual ~LaneEvents() = default;

  // The backend has completed a part of the operation well; what it calls it may be another id.
  virtual void OnMoved(OperationId id, const Completion& completion) = 0;
  // It goes no further here, and has not ended well.
  virtual void OnGivenUp(OperationId id, Clock::time_point now) = 0;
  // It has ended well, and the local ranks have its results.
  virtual void OnFinished(const Execution& done, Clock::time_point now) = 0;

  // What a member says by this number; null if there is no such meta.
  virtual const TensorMeta* FindMeta(std::uint32_t meta_id) const = 0;
};

// A lane's operations are either this node's to carry out (WireLane), or the ranks' own, whom this
// node watches (NodeLane). What concerns only the one is nothing in the other, as it stands here.
//
// Thread safety: none; the progress thread owns it. Nothing blocks.
// Invariant: each operation that was started ends in one OnFinished or OnGivenUp, unless Fail comes
//   before; then in neither.
class Lane {
 public:
  virtual ~Lane() = default;
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // The ranks combine what they have in host memory themselves.
  virtual bool CombinesLocally() const noexcept = 0;

  // Names of tensors that the ranks combine themselves: a number for each, as long as a
  // registration holds it.
  //   kResourceExhausted: there are no numbers left.
  virtual absl::StatusOr<std::uint32_t> HoldName(const std::string& /*name*/) {
    return absl::InternalError("this node carries the ranks' operations out");
  }
  virtual void ReleaseName(std::uint32_t /*tensor*/) {}
  // Numbers are below that.
  virtual std::uint32_t tensor_count() const noexcept { return 0; }
  // Of all names that have one.
  virtual std::uint64_t name_bytes() const noexcept { return 0; }
  virtual std::optional<std::string> NameOf(std::uint32_t /*tensor*/) const { return std::nullopt; }

  // Takes an operation on. `root`: the node of its root; `digest`: what each of its messages says
  // of its description (OperationScheduler::DigestOf).
  virtual absl::Status Start(std::unique_ptr<Execution> /*execution*/, NodeIndex /*root*/,
                             std::uint64_t /*digest*/) {
    return absl::InternalError("the ranks of one node combine their tensors themselves");
  }
  // Takes one back, if it is under way.
  virtual void Cancel(OperationId /*id*/, Clock::time_point /*now*/) {}
  // No operation of this channel will be started any more.
  virtual void Retire(std::uint32_t /*channel*/) {}
  // Advances everything a bit; returns the amount of work done. An error means that the
  // communicator must fail.
  virtual absl::StatusOr<std::size_t> Advance(Clock::time_point /*now*/) { return 0; }
  // Copies a piece of a result to its ranks. False if there is none.
  virtual bool CopyPiece() { return false; }
  // Ends all that is under way: the members' memory is let go of, soon (Quiet).
  virtual void Fail(absl::string_view /*reason*/) {}
  // A reducer is amid a piece of an operation that was given up: it still reads tensors of which
  // another operation may be about to write the results, or writes results of which nobody must
  // hear any more.
  virtual bool ReducersLinger() const noexcept { return false; }

  // Operations are under way on this node.
  virtual bool Busy() const noexcept { return false; }
  // True if `is_wanted(tensors)` is, of an operation under way.
  virtual bool AnyUnderWay(const std::function<bool(const TensorList&)>& /*is_wanted*/) const {
    return false;
  }
  // Nothing touches any arena.
  virtual bool Quiet() const noexcept { return true; }

  // Looks at what the ranks do by themselves. Call it every now and then.
  virtual void Look(Clock::time_point now) = 0;
  // When that wants to be called; nullopt: never.
  virtual std::optional<Clock::time_point> NextLook(Clock::time_point now) const = 0;
  // Nothing that the ranks do by themselves is in flight (NodeLane), or late (WireLane).
  virtual bool RanksRest() const noexcept = 0;
  // The member has something in flight that the ranks combine themselves.
  virtual bool HasInFlight(int /*member*/) const noexcept { return false; }

  // Of what the ranks carry out themselves. Since when the oldest waits, if it came before
  // `before`: at once, from the last looks.
  virtual std::optional<Clock::time_point> WaitingSince(Clock::time_point before) const = 0;
  // What has waited since `before` or longer: of each member at most `most`. `all` becomes false if
  // some are left out.
  virtual void AddWaiting(Clock::time_point before, std::size_t most, bool& all,
                          std::vector<WaitingSubmission>& waiting) const = 0;
  // The members for whom a tensor waits, where by what has come here it is `absent`.
  virtual std::vector<int> MembersWithout(const std::string& tensor,
                                          std::vector<int> absent) const = 0;

  // Whether all members here have submitted a tensor whose oldest operation in flight waits for
  // some of them, where by what has come here `absent` have not.
  virtual bool AllHaveSubmitted(const std::string& tensor,
                                const std::vector<int>& absent) const = 0;

  // What the ranks have carried out themselves so far.
  struct Carried {
    std::uint64_t tensors = 0;
    std::uint64_t operations = 0;
    std::uint64_t payload_bytes = 0;
  };
  virtual Carried CarriedByRanks() const noexcept = 0;
  // The same of a member's submissions, to be added.
  virtual void AddCounters(int member, MemberCounters& counters) const noexcept = 0;

  // How the ranks get at each other's ordinary memory; empty if they don't.
  virtual std::string OrdinaryMemory() const { return {}; }

  // Of the wire. What it takes, as a report to the coordinator, if one is due; `idle`: nothing is
  // under way here.
  virtual std::optional<std::vector<LinkObservation>> TakeMeasurements(bool /*idle*/,
                                                                       Epoch /*epoch*/,
                                                                       Clock::time_point /*now*/) {
    return std::nullopt;
  }
  virtual absl::Status Health() const { return absl::OkStatus(); }
  // The node whose connections have ended, if that has been seen.
  virtual std::optional<NodeIndex> LostNode() const { return std::nullopt; }
  // True if they never came to be: Health() says why.
  virtual bool LostNodeIsUnreached() const { return false; }
  virtual CommunicatorStatistics Statistics() const { return {}; }
  virtual ChannelTime TimeOf(std::uint32_t /*channel*/) const { return {}; }

  // The nodes have opened a rank exchange: hands it to the members. `connections` by node, the own
  // one's place empty.
  //   What the kernel says: then there is none.
  virtual absl::Status OpenRankExchange(std::vector<UniqueFd> /*connections*/) {
    return absl::InternalError("ranks of one node need no connections");
  }
  // Null: none has been opened.
  virtual const RankExchangeWatch* rank_exchange() const noexcept { return nullptr; }

 protected:
  Lane() = default;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_LANES_LANE_H_
