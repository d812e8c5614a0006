// Pairs the announcements of all nodes, tensor by tensor.
//
// Thread safety: none.
// Invariant: per tensor at most one announcement of each node is held; an entry leaves the table
//   when the last node has announced the tensor, or by Drop.
#ifndef RINGD_DAEMON_SCHEDULE_COORDINATOR_NEGOTIATION_TABLE_H_
#define RINGD_DAEMON_SCHEDULE_COORDINATOR_NEGOTIATION_TABLE_H_

#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/schedule/protocol/messages.h"
#include "daemon/schedule/protocol/schedule_time.h"
#include "daemon/schedule/protocol/tensor_meta.h"
#include "proto/types/ids.h"

namespace ringd {

// A tensor that some nodes have announced and others have not.
struct StalledTensor {
  std::string name;
  TimePoint since;  // the first announcement
  std::vector<NodeIndex> ready;
  std::vector<NodeIndex> absent;
};

class NegotiationTable {
 public:
  enum class Outcome { kIncomplete, kAgreed, kMismatch };
  struct Result {
    Outcome outcome = Outcome::kIncomplete;
    TensorMeta meta;            // kAgreed
    bool follows_wait = false;  // kAgreed: on some node
    std::string error;          // kMismatch
  };

  // `ordered`: the communicator's name, if its operations are matched by order, for texts.
  explicit NegotiationTable(std::vector<std::string> node_names,
                            std::optional<std::string> ordered = std::nullopt);

  // Notes that `node` is ready. An error, if it has said so before: the node broke the protocol.
  absl::StatusOr<Result> Announce(NodeIndex node, const ReadyTensor& tensor, TimePoint now);

  // Forgets what was announced for `name`, if anything.
  void Drop(const std::string& name) { entries_.erase(name); }

  std::size_t size() const { return entries_.size(); }
  // Oldest first.
  std::vector<StalledTensor> Stalled(TimePoint announced_before) const;

 private:
  struct Entry {
    TimePoint since;
    std::vector<bool> ready;  // by node
    std::size_t ready_count = 0;
    bool follows_wait = false;
    // The description that came first, with the lowest rank that gave it, and all that differ.
    LocatedRankMeta agreed;
    std::vector<LocatedRankMeta> deviating;
  };

  void Note(NodeIndex node, const RankMeta& report, Entry& entry) const;

  const std::vector<std::string> node_names_;
  const std::optional<std::string> ordered_;
  std::unordered_map<std::string, Entry> entries_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_COORDINATOR_NEGOTIATION_TABLE_H_
