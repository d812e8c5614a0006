#include "daemon/jobs/membership/membership.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/config/host_port.h"
#include "proto/base/text.h"
#include "proto/rank_exchange/rank_exchange_segment.h"

namespace ringd {
namespace {

bool HasLocalRank(const MemberNode& node, LocalRank local_rank) {
  for (const MemberRank& member : node.ranks) {
    if (member.local_rank == local_rank) return true;
  }
  return false;
}

constexpr std::size_t kLongestMisfit = 4096;

constexpr RingSource kRingSources[] = {RingSource::kRanks, RingSource::kMeasured,
                                       RingSource::kSetting};

v1::RingChoice ToProto(const RingChoice& ring) {
  v1::RingChoice message;
  message.set_source(std::string(Name(ring.source)));
  message.set_measured_unix_seconds(static_cast<std::uint64_t>(ring.measured_unix_seconds));
  message.set_misfit(ring.misfit);
  for (std::size_t from = 0; from < ring.links.node_count(); ++from) {
    for (std::size_t to = 0; to < ring.links.node_count(); ++to) {
      const MeasuredLink& link = ring.links.at(from, to);
      message.add_latency_us(static_cast<float>(static_cast<double>(link.latency.count()) / 1e3));
      message.add_gbit_per_second(static_cast<float>(link.bytes_per_second * 8 / 1e9));
    }
  }
  return message;
}

// Only people look at it: what makes no sense is left out.
RingChoice FromProto(const v1::RingChoice& message, std::size_t node_count) {
  RingChoice ring;
  for (const RingSource source : kRingSources) {
    if (message.source() == Name(source)) ring.source = source;
  }
  ring.misfit = std::string(CutToLength(message.misfit(), kLongestMisfit));
  const auto links = static_cast<int>(node_count * node_count);
  if (message.latency_us_size() != links || message.gbit_per_second_size() != links) return ring;
  LinkMatrix matrix(node_count);
  for (int i = 0; i < links; ++i) {
    constexpr float kMost = 1e12F;
    const float latency_us = message.latency_us(i);
    const float gbit = message.gbit_per_second(i);
    if (!(latency_us >= 0 && latency_us <= kMost && gbit >= 0 && gbit <= kMost)) return ring;
    const auto place = static_cast<std::size_t>(i);
    MeasuredLink& link = matrix.at(place / node_count, place % node_count);
    link.latency = std::chrono::nanoseconds(std::llround(latency_us * 1e3F));
    link.bytes_per_second = static_cast<double>(gbit) * 1e9 / 8;
  }
  ring.links = std::move(matrix);
  ring.measured_unix_seconds = static_cast<std::int64_t>(message.measured_unix_seconds());
  return ring;
}

constexpr std::size_t kLongestReason = 512;

// Why these nodes can have no rank exchange; empty if they can.
std::string RankExchangeObstacle(const Membership& membership) {
  if (membership.nodes.size() < 2) return "all ranks are on one node";
  if (membership.nodes.size() > kRankExchangeMostNodes) {
    return absl::StrCat("there are more than ", kRankExchangeMostNodes, " nodes");
  }
  for (const MemberNode& node : membership.nodes) {
    if (node.ranks.size() > kRankExchangeMostMembers) {
      return absl::StrCat(node.name, " has more than ", kRankExchangeMostMembers, " ranks");
    }
    if (node.rank_exchange_address.empty()) {
      return absl::StrCat("ringd on ", node.name,
                          " takes no part (its setting rank_exchange, or its log says why)");
    }
    if (!IsNumericHostPort(node.rank_exchange_address)) {
      return absl::StrCat("ringd on ", node.name, " says no address that makes sense");
    }
  }
  return "";
}

absl::Status CheckOffer(const Membership& membership) {
  const RankExchangeOffer& offer = membership.rank_exchange;
  std::string obstacle = RankExchangeObstacle(membership);
  if (offer.limit_bytes == 0 || offer.limit_bytes > kRankExchangeMostBytes) {
    obstacle = absl::StrCat("a limit of ", offer.limit_bytes, " bytes is not possible");
  }
  if (offer.flat_bytes > offer.limit_bytes ||
      (offer.has_knomial() && membership.nodes.size() == 2)) {
    obstacle = absl::StrCat("another tree beyond ", offer.flat_bytes, " bytes is not possible");
  }
  if (obstacle.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the coordinator offers a rank exchange, but ", obstacle));
}

}  // namespace

absl::string_view Name(RingSource source) {
  switch (source) {
    case RingSource::kRanks:
      return "ranks";
    case RingSource::kMeasured:
      return "measured";
    case RingSource::kSetting:
      return "setting";
  }
  return "invalid";
}

int Membership::size() const noexcept {
  std::size_t total = 0;
  for (const MemberNode& node : nodes) total += node.ranks.size();
  return static_cast<int>(total);
}

bool Membership::Homogeneous() const noexcept {
  for (const MemberNode& node : nodes) {
    if (node.ranks.size() != nodes.front().ranks.size()) return false;
  }
  return true;
}

int Membership::CrossSize(LocalRank local_rank) const noexcept {
  int count = 0;
  for (const MemberNode& node : nodes) count += HasLocalRank(node, local_rank) ? 1 : 0;
  return count;
}

int Membership::CrossRank(LocalRank local_rank) const noexcept {
  int before = 0;
  for (int i = 0; i < self.value(); ++i) {
    before += HasLocalRank(nodes[static_cast<std::size_t>(i)], local_rank) ? 1 : 0;
  }
  return before;
}

NodeIndex Membership::NodeOf(Rank rank) const noexcept {
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const MemberRank& member : nodes[i].ranks) {
      if (member.rank == rank) return NodeIndex(static_cast<int>(i));
    }
  }
  return NodeIndex(-1);
}

absl::StatusOr<Membership> Subset(const Membership& whole, std::span<const int> ranks,
                                  std::uint64_t wire_id) {
  const std::set<int> wanted(ranks.begin(), ranks.end());
  Membership part = whole;
  part.wire_id = wire_id;
  part.self = NodeIndex(-1);
  part.rank_exchange = {};
  part.rank_exchange.why_not = "it is the one of all ranks that has it";
  part.ring.links = {};
  part.nodes.clear();
  std::size_t found = 0;
  for (int n = 0; n < whole.node_count(); ++n) {
    MemberNode node = whole.nodes[static_cast<std::size_t>(n)];
    std::erase_if(node.ranks,
                  [&](const MemberRank& member) { return !wanted.contains(member.rank.value()); });
    if (node.ranks.empty()) continue;
    found += node.ranks.size();
    if (n == whole.self.value()) part.self = NodeIndex(part.node_count());
    part.nodes.push_back(std::move(node));
  }
  if (found == 0 || found != wanted.size() || found != ranks.size()) {
    return absl::InvalidArgumentError("these are not ranks of the job, each once");
  }
  return part;
}

RankExchangeOffer OfferRankExchange(const Membership& membership, const RankExchangeSizes& sizes) {
  RankExchangeOffer offer;
  offer.why_not = RankExchangeObstacle(membership);
  if (!offer.why_not.empty()) return offer;
  // One other node sends as much either way. With more the hub's line is what limits it.
  const bool is_pair = membership.nodes.size() == 2;
  const auto most = [&](std::size_t bytes) {
    return is_pair ? kRankExchangeMostBytes : std::min(bytes, kRankExchangeMostBytesOfMany);
  };
  const std::size_t flat = most(sizes.flat);
  const std::size_t limit = std::max(flat, most(sizes.knomial));
  if (limit == 0) {
    offer.why_not = "no all-reduce goes through one node here (flat_all_reduce_bytes, or as tried)";
    return offer;
  }
  offer.offered = true;
  offer.limit_bytes = static_cast<std::uint32_t>(limit);
  offer.flat_bytes = static_cast<std::uint32_t>(flat);
  return offer;
}

v1::Membership ToProto(const Membership& membership) {
  v1::Membership message;
  message.set_wire_id(membership.wire_id);
  message.set_generation(membership.generation);
  message.set_node_index(membership.self.value());
  message.set_flat_all_reduce_bytes(membership.algorithms.flat_all_reduce_bytes);
  message.set_small_all_reduce_bytes(membership.algorithms.small_all_reduce_bytes);
  message.set_small_broadcast_bytes(membership.algorithms.small_broadcast_bytes);
  message.set_chunk_bytes(membership.algorithms.chunk_bytes);
  *message.mutable_ring() = ToProto(membership.ring);
  message.mutable_rank_exchange()->set_offered(membership.rank_exchange.offered);
  message.mutable_rank_exchange()->set_limit_bytes(membership.rank_exchange.limit_bytes);
  message.mutable_rank_exchange()->set_flat_bytes(membership.rank_exchange.flat_bytes);
  message.mutable_rank_exchange()->set_why_not(membership.rank_exchange.why_not);
  for (const MemberNode& node : membership.nodes) {
    v1::NodeMember* to = message.add_nodes();
    to->set_node_name(node.name);
    to->set_transport_address(node.transport_address);
    to->set_rank_exchange_address(node.rank_exchange_address);
    for (const MemberRank& rank : node.ranks) {
      v1::RankInfo* info = to->add_ranks();
      info->set_rank(rank.rank.value());
      info->set_local_rank(rank.local_rank.value());
      info->set_pid(rank.pid);
      info->set_program(rank.program);
    }
  }
  return message;
}

absl::StatusOr<Membership> FromProto(const v1::Membership& message) {
  Membership membership;
  membership.wire_id = message.wire_id();
  membership.generation = message.generation();
  membership.self = NodeIndex(message.node_index());
  membership.algorithms.flat_all_reduce_bytes = message.flat_all_reduce_bytes();
  membership.algorithms.small_all_reduce_bytes = message.small_all_reduce_bytes();
  membership.algorithms.small_broadcast_bytes = message.small_broadcast_bytes();
  membership.algorithms.chunk_bytes = message.chunk_bytes();
  std::set<int> seen;
  for (const v1::NodeMember& node : message.nodes()) {
    MemberNode& to = membership.nodes.emplace_back();
    to.name = node.node_name();
    to.transport_address = node.transport_address();
    to.rank_exchange_address = node.rank_exchange_address();
    for (const v1::RankInfo& info : node.ranks()) {
      to.ranks.push_back(MemberRank{Rank(info.rank()), LocalRank(info.local_rank()), info.pid(),
                                    PrintableProgram(info.program())});
      seen.insert(info.rank());
    }
    if (node.ranks().empty()) return absl::InvalidArgumentError("a member node without ranks");
  }
  const bool whole = !seen.empty() && *seen.begin() == 0 &&
                     *seen.rbegin() + 1 == static_cast<int>(seen.size()) &&
                     static_cast<int>(seen.size()) == membership.size();
  if (!whole || message.node_index() < 0 || message.node_index() >= membership.node_count() ||
      message.chunk_bytes() == 0) {
    return absl::InvalidArgumentError("the coordinator sent a membership that makes no sense");
  }
  membership.rank_exchange = {
      message.rank_exchange().offered(), message.rank_exchange().limit_bytes(),
      message.rank_exchange().flat_bytes(),
      std::string(CutToLength(message.rank_exchange().why_not(), kLongestReason))};
  if (membership.rank_exchange.offered) {
    if (absl::Status status = CheckOffer(membership); !status.ok()) return status;
  }
  membership.ring = FromProto(message.ring(), membership.nodes.size());
  return membership;
}

std::string PrintableProgram(absl::string_view name) {
  constexpr std::size_t kMaxNameBytes = 64;
  if (const std::size_t slash = name.rfind('/'); slash != absl::string_view::npos) {
    name.remove_prefix(slash + 1);
  }
  std::string text(CutToLength(name, kMaxNameBytes));
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

std::string DescribeRank(Rank rank, int pid, absl::string_view node_name) {
  return absl::StrCat("rank ", rank.value(), ", pid ", pid, " on ", node_name);
}

std::string DescribeNode(const MemberNode& node) {
  return absl::StrCat(node.name, node.ranks.size() == 1 ? " (rank " : " (ranks ",
                      absl::StrJoin(node.ranks, ", ",
                                    [](std::string* out, const MemberRank& member) {
                                      absl::StrAppend(out, member.rank.value());
                                    }),
                      ")");
}

std::string DescribeLostNode(const MemberNode& node) {
  return absl::StrCat("ringd on ", DescribeNode(node), " ended or lost its connection");
}

}  // namespace ringd
