// Why a job over several nodes ends on this one: what its coordinator says, so that all nodes say
// the same.
#ifndef RINGD_DAEMON_JOBS_MEMBERSHIP_AGREED_CAUSE_H_
#define RINGD_DAEMON_JOBS_MEMBERSHIP_AGREED_CAUSE_H_

#include <chrono>
#include <optional>

#include "absl/status/status.h"
#include "proto/base/clock.h"

namespace ringd {

// What a node sees for itself (a dead rank, a lost neighbour, a deadline) is a proposal. The
// coordinator takes the first of which it hears, perhaps another node's, and tells all; until then
// the node keeps its own to itself and lets nothing more succeed. Where there is no answer, nodes
// can't agree: the end of the coordinator's stream is then the cause, since all of them see that,
// and with a coordinator that is connected and silent it is the node's own proposal.
//
// Thread safety: none.
// Invariant: once decided, the cause stays.
class AgreedCause {
 public:
  // How long an answer may take, on busy machines, too. It stays away where the coordinator's
  // engine is stopped: ranks have to hear why their job ends all the same. A call to join waits 5 s
  // longer than the job's start may take.
  static constexpr std::chrono::seconds kPatience{3};

  // The node has seen why the job can't go on. True: the coordinator is to be told. False: it has
  // been told of another cause, or the cause is decided.
  [[nodiscard]] bool Propose(const absl::Status& cause) {
    if (decided() || pending()) return false;
    proposal_ = cause;
    return true;
  }

  // The coordinator's word, or what is seen without one. False: it was decided before.
  bool Decide(const absl::Status& cause) {
    if (decided()) return false;
    cause_ = cause;
    return true;
  }

  // The proposal, if the answer to it does not come. Ask every now and then: patience begins with
  // the first time.
  std::optional<absl::Status> Unanswered(Clock::time_point now) {
    if (!pending()) return std::nullopt;
    if (!deadline_.has_value()) deadline_ = now + kPatience;
    if (now < *deadline_) return std::nullopt;
    return proposal_;
  }

  // True while a proposal waits for its answer.
  bool pending() const noexcept { return !proposal_.ok() && !decided(); }
  bool decided() const noexcept { return !cause_.ok(); }
  // OK until it is decided.
  const absl::Status& cause() const noexcept { return cause_; }

 private:
  absl::Status proposal_;
  std::optional<Clock::time_point> deadline_;
  absl::Status cause_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_MEMBERSHIP_AGREED_CAUSE_H_
