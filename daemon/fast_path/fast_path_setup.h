// Opening a job's fast path: the connections between its ringds.
#ifndef RINGD_DAEMON_FAST_PATH_FAST_PATH_SETUP_H_
#define RINGD_DAEMON_FAST_PATH_FAST_PATH_SETUP_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/fast_path/fast_path_listener.h"
#include "daemon/logging/log.h"
#include "proto/base/clock.h"
#include "proto/base/unique_fd.h"
#include "proto/fast_path/fast_path_message.h"
#include "proto/fast_path/fast_path_tree.h"

namespace ringd {

// What a node knows of the job's fast path from its membership.
struct FastPathPlan {
  std::uint64_t wire_id = 0;
  std::string token;  // kFastPathTokenBytes
  std::uint32_t self = 0;
  std::vector<std::string> node_names;  // by node; the messages name them
  std::vector<std::string> addresses;   // by node, "host:port"
  bool knomial = false;  // that tree is wanted, too (proto/fast_path/fast_path_tree.h)
};

//   node 0, the root: takes the connections of all others; when the last has come, says FastPathOpen to all.
//   the others: connect to their parents and say FastPathHello, to the root last: when that to the other parent is
//       said and all children have come. Then they wait for FastPathOpen.
//
// Gives up as a whole: if a node does not come within kPatience, the root hangs up on the others.
//
// Thread safety: none; the engine thread owns it.
// Ownership: owns the connections until they are taken; `listener` must outlive it. Never blocks.
class FastPathSetup {
 public:
  static constexpr std::chrono::milliseconds kPatience{1000};
  // The others hear from the root that it has given up; if not even that.
  static constexpr std::chrono::milliseconds kGrace{500};

  enum class State : std::uint8_t { kPending, kOpen, kFailed };

  FastPathSetup(FastPathPlan plan, FastPathListener* listener, LogFields fields,
                Clock::time_point now);
  ~FastPathSetup();
  FastPathSetup(const FastPathSetup&) = delete;
  FastPathSetup& operator=(const FastPathSetup&) = delete;

  // Call it whenever something may have happened, and at the latest at Deadline().
  State Advance(Clock::time_point now);
  Clock::time_point Deadline() const noexcept;
  // Of kFailed: which node, and what it did.
  const absl::Status& failure() const noexcept { return failure_; }

  // Of kOpen, once: by node, fit for FastPathExchange::Create but for the own node's place, which is empty.
  std::vector<UniqueFd> TakeConnections();

 private:
  bool is_root() const noexcept { return plan_.self == 0; }
  // Whether the root has been told that all is ready here.
  bool reported() const noexcept { return (greeted_ & NodeBit(0)) != 0; }
  void Gather();
  absl::Status AddArrival(FastPathListener::Arrival& arrival);
  void OpenAll();
  bool BeginConnecting(std::uint32_t parent);
  void FinishConnecting(std::uint32_t parent);
  void Greet(std::uint32_t parent);
  // Those on which nothing is to come yet.
  void CheckSilence();
  void AwaitOpen();
  void FailForTime();
  void Fail(absl::string_view why);
  // The same, because of that node.
  void FailFor(std::uint32_t node, absl::string_view what);
  void CloseAll();
  // Children that have not come.
  FastPathNodeSet Missing() const noexcept;
  std::string DescribeMissing() const;

  const FastPathPlan plan_;
  FastPathListener* const listener_;
  const LogFields fields_;
  const Clock::time_point began_;
  State state_ = State::kPending;
  absl::Status failure_;
  FastPathNodeSet children_ = 0;       // who connects to this node
  FastPathNodeSet parents_ = 0;        // to whom it connects
  FastPathNodeSet connected_ = 0;      // ... and has
  FastPathNodeSet greeted_ = 0;        // ... and has said hello
  std::vector<UniqueFd> connections_;  // by node
  std::size_t filled_ = 0;             // bytes of
  FastPathOpen open_{};
};

}  // namespace ringd

#endif  // RINGD_DAEMON_FAST_PATH_FAST_PATH_SETUP_H_
