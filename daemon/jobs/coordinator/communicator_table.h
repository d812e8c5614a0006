// Which communicators the ranks of a job have asked for, and which there are.
#ifndef RINGD_DAEMON_JOBS_COORDINATOR_COMMUNICATOR_TABLE_H_
#define RINGD_DAEMON_JOBS_COORDINATOR_COMMUNICATOR_TABLE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/clock.h"

namespace ringd {

// "ranks 0, 1, 4", or of many the first ones and how many more.
std::string NameRanks(std::span<const int> ranks);

struct AskedCommunicator {
  std::string name;
  std::vector<int> ranks;  // of the job, in the communicator's order
  bool by_order = false;   // its operations are matched by order, not by name

  friend bool operator==(const AskedCommunicator&, const AskedCommunicator&) = default;
};

// What ranks hear that have asked for one that they don't get.
struct RefusedCommunicator {
  std::string name;
  std::vector<int> asked;  // who is refused
  absl::Status why;
};

// What each rank asks for, until all ranks of one have asked alike; and the names that are taken.
// Who asks by one name means one communicator, unless the lists of ranks have none in common.
//
// Thread safety: none; the progress thread owns it.
// Trust: what is asked came over the network; it is checked here, and bounded.
class CommunicatorTable {
 public:
  // Of a job, those that are asked for counted, but for the one of all ranks.
  static constexpr std::size_t kMostCommunicators = 1024;

  explicit CommunicatorTable(int job_size) : job_size_(job_size) {}

  // The rank asks. All of its ranks have: the communicator, which is to be made, and for which the
  // caller calls Made next. Refused: who hears of it. Else the rank waits.
  std::variant<std::monostate, AskedCommunicator, RefusedCommunicator> Ask(
      int rank, AskedCommunicator asked, std::chrono::nanoseconds patience, Clock::time_point now);
  // Its number: 1, 2, ..., never used again.
  std::uint32_t Made(AskedCommunicator made);
  // The rank needs it no more. True if it was the last one that has not left: the communicator has
  // ended.
  bool Drop(std::uint32_t number, int rank);
  // Those that will not come about: their deadline has passed.
  std::vector<RefusedCommunicator> Expire(Clock::time_point now);
  // Nobody can wait for the rank any more, which has left.
  struct WithoutRank {
    std::vector<RefusedCommunicator> refused;
    std::vector<std::uint32_t> ended;  // its other ranks need them no more
  };
  WithoutRank OnRankLeft(int rank);

  // True while Expire is to be called.
  bool anyone_waits() const noexcept { return !waiting_.empty(); }

 private:
  struct Waiting {
    AskedCommunicator asked;
    std::set<int> present;
    Clock::time_point deadline;
    std::chrono::nanoseconds patience;
  };
  struct Live {
    AskedCommunicator made;
    std::set<int> dropped;
  };

  absl::Status Check(int rank, const AskedCommunicator& asked) const;
  // No rank is there that needs it.
  bool HasEnded(const Live& live) const;
  void Forget(std::uint32_t number);
  static RefusedCommunicator Refuse(const Waiting& waiting, absl::Status why);

  const int job_size_;
  std::multimap<std::string, Waiting> waiting_;  // by name
  std::map<std::uint32_t, Live> live_;
  std::multimap<std::string, std::uint32_t> names_;  // of live_
  std::set<int> left_;
  std::uint32_t last_number_ = 0;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_COORDINATOR_COMMUNICATOR_TABLE_H_
