// Opening a job's rank exchange: the connections between its ringds.
#ifndef RINGD_DAEMON_LANES_RANK_EXCHANGE_RANK_EXCHANGE_SETUP_H_
#define RINGD_DAEMON_LANES_RANK_EXCHANGE_RANK_EXCHANGE_SETUP_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/lanes/rank_exchange/rank_exchange_sockets.h"
#include "daemon/logging/log.h"
#include "proto/base/clock.h"
#include "proto/base/unique_fd.h"
#include "proto/rank_exchange/rank_exchange_message.h"
#include "proto/rank_exchange/rank_exchange_tree.h"

namespace ringd {

// What a node knows of the job's rank exchange from its membership.
struct RankExchangePlan {
  std::uint64_t wire_id = 0;
  std::string key;  // KeyForExchange of the job's key
  std::uint32_t self = 0;
  std::vector<std::string> node_names;  // by node; the messages name them
  std::vector<std::string> addresses;   // by node, "host:port"
  bool knomial = false;  // that tree is wanted, too (proto/rank_exchange/rank_exchange_tree.h)
};

//   all but node 0, the hub: connect to their parents, through the door, where both sides prove
//       the job's key. When a node has its parents and children, it says RankExchangeReady to the
//       hub, and waits for RankExchangeOpen.
//   the hub: when all others are ready, says RankExchangeOpen to all.
//
// Gives up as a whole: if a node does not come within kPatience, the hub hangs up on the others.
//
// Thread safety: none; the progress thread owns it.
// Ownership: owns the connections until they are taken; `sockets` must outlive it. Never blocks.
class RankExchangeSetup {
 public:
  static constexpr std::chrono::milliseconds kPatience{1000};
  // The others hear from the hub that it has given up; if not even that.
  static constexpr std::chrono::milliseconds kGrace{500};

  enum class State : std::uint8_t { kPending, kOpen, kFailed };

  RankExchangeSetup(RankExchangePlan plan, RankExchangeSockets* sockets, LogFields fields,
                    Clock::time_point now);
  ~RankExchangeSetup();
  RankExchangeSetup(const RankExchangeSetup&) = delete;
  RankExchangeSetup& operator=(const RankExchangeSetup&) = delete;

  // Call it whenever something may have happened, and at the latest at Deadline().
  State Advance(Clock::time_point now);
  Clock::time_point Deadline() const noexcept;
  // Of kFailed: which node, and what it did.
  const absl::Status& failure() const noexcept { return failure_; }

  // Of kOpen, once: by node, fit for RankExchange::Create but for the own node's place, which is
  // empty.
  std::vector<UniqueFd> TakeConnections();

 private:
  bool is_hub() const noexcept { return plan_.self == 0; }
  // Takes in who has come, here or there.
  void Gather();
  absl::Status AddConnection(WireSockets::Event& event);
  // The hub: hears who is ready.
  void HearReady();
  void OpenAll();
  // The others: tells the hub.
  void Report();
  // Those on which nothing is to come yet.
  void CheckSilence();
  void AwaitOpen();
  void FailForTime();
  void Fail(absl::string_view why);
  // The same, because of that node.
  void FailFor(std::uint32_t node, absl::string_view what);
  void CloseAll();
  // Neighbours that have not come, or to whom this node has not come yet.
  RankExchangeNodeSet Missing(RankExchangeNodeSet of) const noexcept;
  std::string DescribeMissing() const;

  const RankExchangePlan plan_;
  RankExchangeSockets* const sockets_;
  const LogFields fields_;
  const Clock::time_point began_;
  State state_ = State::kPending;
  absl::Status failure_;
  RankExchangeNodeSet children_ = 0;   // who connects to this node
  RankExchangeNodeSet parents_ = 0;    // to whom it connects
  RankExchangeNodeSet ready_ = 0;      // the hub: who has said so
  bool reported_ = false;              // the others: the hub has been told that all is ready here
  std::vector<UniqueFd> connections_;  // by node
  // What has come of the one message that is to come, by node.
  struct Heard {
    RankExchangeSign sign{};
    std::size_t filled = 0;
  };
  std::vector<Heard> heard_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_LANES_RANK_EXCHANGE_RANK_EXCHANGE_SETUP_H_
