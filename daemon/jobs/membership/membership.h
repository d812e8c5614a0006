// Who takes part in a job: fixed once every rank has joined.
#ifndef RINGD_DAEMON_JOBS_MEMBERSHIP_MEMBERSHIP_H_
#define RINGD_DAEMON_JOBS_MEMBERSHIP_MEMBERSHIP_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/communicator.h"
#include "daemon/schedule/routes/all_reduce_times.h"
#include "daemon/schedule/routes/link_matrix.h"
#include "proto/rpc/peer.pb.h"
#include "proto/types/ids.h"

namespace ringd {

struct MemberRank {
  Rank rank;
  LocalRank local_rank;
  int pid = 0;  // on its node; for people, no identity
  std::string program;
};

struct MemberNode {
  std::string name;
  std::string transport_address;
  std::vector<MemberRank> ranks;           // by local rank
  std::string rank_exchange_address = {};  // empty: it has no part in a rank exchange
};

// How the order of the nodes came about.
enum class RingSource { kRanks, kMeasured, kSetting };

// "ranks", "measured", "setting".
absl::string_view Name(RingSource source);

struct RingChoice {
  RingSource source = RingSource::kRanks;
  LinkMatrix links;  // by the nodes' places in the ring; empty if they were not measured
  std::int64_t measured_unix_seconds = 0;
  std::string misfit;  // how the setting ring_order does not fit the job, for people; mostly empty
};

// Whether the nodes are to open a rank exchange (daemon/lanes/rank_exchange).
struct RankExchangeOffer {
  bool offered = false;
  std::uint32_t limit_bytes = 0;
  std::uint32_t flat_bytes = 0;  // larger ones take the k-nomial tree; limit_bytes at most
  std::string why_not;           // for people

  bool has_knomial() const noexcept { return flat_bytes < limit_bytes; }
};

// Immutable. Node 0 holds rank 0. The ring passes through the nodes as they stand here.
struct Membership {
  std::uint64_t wire_id = 0;
  std::uint32_t generation = 0;
  NodeIndex self;
  std::vector<MemberNode> nodes;
  AlgorithmOptions algorithms;
  RingChoice ring;
  RankExchangeOffer rank_exchange;

  // This node. Precondition: it has a place.
  const MemberNode& own() const noexcept { return nodes[static_cast<std::size_t>(self.value())]; }
  int node_count() const noexcept { return static_cast<int>(nodes.size()); }
  int size() const noexcept;
  bool Homogeneous() const noexcept;
  // Among the nodes that have a rank with this local rank: their number, and this node's place.
  int CrossSize(LocalRank local_rank) const noexcept;
  int CrossRank(LocalRank local_rank) const noexcept;
  // The node that holds `rank`; -1 if there is none.
  NodeIndex NodeOf(Rank rank) const noexcept;
};

// The part of `whole` that has `ranks` alone, in the order of its ring. `self` is the same node's
// place there; -1 if it has none of the ranks. It has no rank exchange of its own.
//   kInvalidArgument: a rank that is none of the job's, or none at all, or one twice.
absl::StatusOr<Membership> Subset(const Membership& whole, std::span<const int> ranks,
                                  std::uint64_t wire_id);

// What the coordinator offers to the nodes. `sizes`: what each tree is good for; between two nodes
// it does not matter.
RankExchangeOffer OfferRankExchange(const Membership& membership, const RankExchangeSizes& sizes);

v1::Membership ToProto(const Membership& membership);
// kInvalidArgument if what came makes no sense (it came over the network).
absl::StatusOr<Membership> FromProto(const v1::Membership& message);

// The program's name that a client or another node gives, made fit for messages: without folders,
// at most 64 printable ASCII characters.
std::string PrintableProgram(absl::string_view name);

// "rank 3, pid 4711 on node-b": how errors and warnings name a rank.
std::string DescribeRank(Rank rank, int pid, absl::string_view node_name);

// "node-b (ranks 2, 3)": how they name a node.
std::string DescribeNode(const MemberNode& node);

// "ringd on node-b (ranks 2, 3) ended or lost its connection": all that the others can tell.
std::string DescribeLostNode(const MemberNode& node);

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_MEMBERSHIP_MEMBERSHIP_H_
