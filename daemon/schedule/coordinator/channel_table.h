// The learned buckets as the coordinator knows them, and the way of one out of service.
//
// Channels are taken out of service in groups: a departure concerns one channel, a new plan all of
// them. A group is done when every node has frozen each of its channels.
//
// Thread safety: none.
// Invariant: a channel is live, or a member of exactly one retirement; a tensor is in at most one
//   channel.
#ifndef RINGD_DAEMON_SCHEDULE_COORDINATOR_CHANNEL_TABLE_H_
#define RINGD_DAEMON_SCHEDULE_COORDINATOR_CHANNEL_TABLE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/schedule/planning/period_learner.h"
#include "daemon/schedule/protocol/messages.h"
#include "proto/types/ids.h"

namespace ringd {

struct Channel {
  bool needs_launch() const { return NeedsLaunch(tensors.front().meta); }

  std::uint32_t number = 0;
  std::vector<LearnedTensor> tensors;
  std::chrono::nanoseconds expected_fill{0};

  // Only if it needs a launch.
  std::uint32_t launched = 0;         // occurrences
  std::vector<std::uint32_t> filled;  // by node: `launched`, or one more
  std::size_t filled_count = 0;       // nodes that have filled the next one

  // While it is taken out of service.
  bool freezing = false;
  std::vector<bool> frozen;            // by node
  std::vector<std::uint32_t> started;  // by node, valid where frozen
  std::size_t frozen_count = 0;
};

// Why channels are taken out of service, and what the nodes said about it.
struct Retirement {
  BreakReason reason = BreakReason::kReplan;
  std::vector<std::uint32_t> channels;
  std::size_t channels_frozen = 0;
  // For a departure, as the node that asked for it reported.
  NodeIndex asked_by{0};
  std::uint32_t asked_after = 0;  // occurrences it had started
  std::set<std::string> named;    // Break::tensors
};

class ChannelTable {
 public:
  explicit ChannelTable(std::size_t node_count) : node_count_(node_count) {}

  // Puts tensors into a new channel.
  Channel& Add(std::vector<LearnedTensor> tensors, std::chrono::nanoseconds expected_fill);
  // Takes a channel out of the table.
  Channel Remove(std::uint32_t number);

  // Tensors that are in no channel are ignored.
  void SetReadiness(const std::unordered_map<std::string, std::chrono::nanoseconds>& offsets);

  // Null if there is none (any more).
  Channel* Find(std::uint32_t number);
  const std::map<std::uint32_t, Channel>& channels() const { return channels_; }
  std::vector<std::uint32_t> LiveChannels() const;
  // True if the number was given out once, though the channel may be gone.
  bool WasUsed(std::uint32_t number) const { return number > 0 && number < next_number_; }

  // Notes that a node has filled the next occurrence of a channel; an error if it broke the
  // protocol. True: all have, and it is to be launched, which is noted, too. Never while the
  // channel is taken out of service.
  absl::StatusOr<bool> NoteFilled(NodeIndex node, const Filled& filled);

  // Begins to take the retirement's channels, all live, out of service.
  void BeginRetirement(Retirement retirement);
  // The retirement of a freezing channel.
  Retirement& RetirementOf(std::uint32_t channel);
  // Notes that a node has frozen a channel; an error if it broke the protocol.
  absl::Status NoteFrozen(NodeIndex node, const Frozen& frozen);
  // Moves out the retirements whose channels are all frozen everywhere.
  std::vector<Retirement> TakeFinishedRetirements();

 private:
  const std::size_t node_count_;
  std::uint32_t next_number_ = 1;  // 0 is the negotiated channel
  std::map<std::uint32_t, Channel> channels_;
  std::vector<std::unique_ptr<Retirement>> retirements_;
  std::unordered_map<std::uint32_t, Retirement*> retirement_of_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_COORDINATOR_CHANNEL_TABLE_H_
