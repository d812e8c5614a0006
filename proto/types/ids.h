// The identities that processes exchange, each its own type so that they can't be confused.
#ifndef RINGD_PROTO_TYPES_IDS_H_
#define RINGD_PROTO_TYPES_IDS_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace ringd {

// An integer that only compares with its own kind. `Tag` makes the type distinct.
template <typename Tag, typename Integer>
class StrongId {
 public:
  using ValueType = Integer;

  constexpr StrongId() noexcept = default;
  constexpr explicit StrongId(Integer value) noexcept : value_(value) {}

  constexpr Integer value() const noexcept { return value_; }

  friend constexpr auto operator<=>(StrongId, StrongId) noexcept = default;

  template <typename H>
  friend H AbslHashValue(H h, StrongId id) {
    return H::combine(std::move(h), id.value_);
  }

 private:
  Integer value_{};
};

// A process's place in its job, 0 .. size-1.
using Rank = StrongId<struct RankTag, std::int32_t>;
// A rank's place among the ranks of its job on its node, 0 .. local_size-1.
using LocalRank = StrongId<struct LocalRankTag, std::int32_t>;
// A node's place in a communicator, 0 .. node_count-1; node 0 holds rank 0 and coordinates.
using NodeIndex = StrongId<struct NodeIndexTag, std::int32_t>;
// One trainer attached to one ringd; unique for the life of that ringd.
using SessionId = StrongId<struct SessionIdTag, std::uint32_t>;
// A communicator as its ringd numbers it; unique for the life of that ringd.
using CommunicatorId = StrongId<struct CommunicatorIdTag, std::uint32_t>;
// Of the name that ranks give a communicator.
inline constexpr std::size_t kMaxCommunicatorNameBytes = 128;
// A tensor's description as registered by one session; unique within that session.
using RegistrationId = StrongId<struct RegistrationIdTag, std::uint32_t>;

// One collective of a communicator, named alike on all its nodes.
// Channel 0 is the negotiated stream, numbered in the coordinator's order; every learned bucket has
// a channel of its own, whose sequence counts the bucket's occurrences.
struct OperationId {
  std::uint32_t channel = 0;
  std::uint32_t sequence = 0;

  friend constexpr auto operator<=>(const OperationId&, const OperationId&) noexcept = default;

  template <typename H>
  friend H AbslHashValue(H h, const OperationId& id) {
    return H::combine(std::move(h), id.channel, id.sequence);
  }
};

}  // namespace ringd

template <typename Tag, typename Integer>
struct std::hash<ringd::StrongId<Tag, Integer>> {
  std::size_t operator()(ringd::StrongId<Tag, Integer> id) const noexcept {
    return std::hash<Integer>()(id.value());
  }
};

template <>
struct std::hash<ringd::OperationId> {
  std::size_t operator()(const ringd::OperationId& id) const noexcept {
    return std::hash<std::uint64_t>()((std::uint64_t{id.channel} << 32) | id.sequence);
  }
};

#endif  // RINGD_PROTO_TYPES_IDS_H_
