// This node's part in one of a job's communicators.
#ifndef RINGD_DAEMON_JOBS_COMMUNICATOR_PART_H_
#define RINGD_DAEMON_JOBS_COMMUNICATOR_PART_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/jobs/communicator/job_communicator.h"
#include "daemon/jobs/membership/membership.h"
#include "daemon/sessions/registration_account.h"
#include "proto/base/clock.h"
#include "proto/rpc/admin.pb.h"
#include "proto/rpc/peer.pb.h"
#include "proto/rpc/plan.pb.h"
#include "proto/rpc/stall.pb.h"

namespace ringd {

struct CommunicatorPart {
  std::uint32_t number = 0;  // within the job; 0: all ranks
  std::string name;          // empty: all ranks
  std::vector<int> ranks;    // in the communicator's order; empty: all ranks
  bool by_order = false;     // its operations are matched by order
  CommunicatorId id;         // of this ringd
  std::shared_ptr<const Membership> membership;
  std::unique_ptr<JobCommunicator> communicator;  // null: not yet, or no more
  std::vector<int> positions;                     // among the job's members here, by member
  RegistrationBytes table_bytes;                  // of the communicator
  v1::Communicator last_description;              // once it has been dropped

  // How long a tensor must have waited before the coordinator is asked again.
  std::chrono::nanoseconds next_stall_report{};
  Clock::time_point stalled_since;       // what waited longest when that was looked at last
  Clock::time_point stall_reported_at;   // when this node has asked last
  std::optional<v1::StallReport> asked;  // then, until there is a verdict
  // JobCommunicator::Progress, and when it was seen to differ.
  std::optional<std::uint64_t> progress;
  Clock::time_point progressed_at;
  v1::Plan plan;  // as the coordinator told it last
  v1::StallVerdict verdict;
  Clock::time_point verdict_at;
  // Of the verdict's ranks those of this node, by member: what they had submitted then.
  std::map<int, MemberCounters> awaited_here;

  // Ranks that have destroyed it, here or elsewhere, and when this node heard of the last.
  std::vector<int> dropped;
  Clock::time_point last_dropped;
  bool ended = false;  // all have
  // Of those other than the first. Active: something is under way, and each turn advances it.
  bool active = false;
  Clock::time_point cools_until;  // each tick does
  Clock::time_point next_look;    // at whether anything waits in it

  // -1: that member of the job has no part in it.
  int MemberAt(int position) const noexcept {
    const auto found = std::find(positions.begin(), positions.end(), position);
    return found == positions.end() ? -1 : static_cast<int>(found - positions.begin());
  }
  // `rank`: one of the job's.
  bool Has(int rank) const noexcept {
    return number == 0 || std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  }
  bool HasDropped(int rank) const noexcept {
    return std::find(dropped.begin(), dropped.end(), rank) != dropped.end();
  }
};

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_COMMUNICATOR_PART_H_
