// Whose turn it is, among those that share something by their weights.
#ifndef RINGD_BACKENDS_COLLECTIVES_FAIR_TURNS_H_
#define RINGD_BACKENDS_COLLECTIVES_FAIR_TURNS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ringd {

template <typename Member>
class FairTurns;

// What one that takes turns has had, for FairTurns.
class FairTurn {
 public:
  // Requirement: weight > 0.
  void set_weight(std::uint32_t weight) noexcept { weight_ = weight; }

 private:
  template <typename Member>
  friend class FairTurns;

  std::uint64_t weight_ = 1;
  // Its start tag while it has turns; the finish tag of its last turn while it has none. In 1/256
  // byte, so that rounding does not show at any weight up to 100. Tags may wrap around: only
  // differences count.
  std::uint64_t tag_ = 0;
};

// One level of start-time fair queueing (P. Goyal, H. M. Vin, H. Cheng: Start-time Fair Queueing: A
// Scheduling Algorithm for Integrated Services Packet Switching Networks, IEEE/ACM Trans.
// Networking 5, 1997; levels are its section on hierarchical link sharing).
//
// The turn of a member carries a start tag: the finish tag of its turn before, or the virtual time
// if it had nothing to do. The finish tag is the start tag and the turn's bytes divided by the
// member's weight. The least start tag goes next, and the virtual time is the start tag of the one
// that went last.
//
// `Member` derives from FairTurn, or is its friend.
//
// Thread safety: none.
// Ownership: members stay the caller's.
template <typename Member>
class FairTurns {
 public:
  // A new member, of now `count`, that has no turns yet: so that Begin() allocates nothing.
  void Add(Member& member, std::size_t count) {
    members_.reserve(count);
    TurnOf(member).tag_ = virtual_time_;
  }
  bool empty() const noexcept { return members_.empty(); }

  // From now on it has turns. Requirement: it has none.
  void Begin(Member& member) noexcept {
    FairTurn& turn = TurnOf(member);
    if (Before(turn.tag_, virtual_time_)) turn.tag_ = virtual_time_;
    members_.push_back(&member);
  }
  // Requirement: it has turns.
  void End(Member& member) noexcept { std::erase(members_, &member); }

  // Of equal ones, whoever has waited longer. Requirement: !empty().
  Member& Next() noexcept {
    return **std::min_element(members_.begin(), members_.end(), [](Member* one, Member* other) {
      return Before(TurnOf(*one).tag_, TurnOf(*other).tag_);
    });
  }
  // Next() has had its turn, which took `bytes`.
  void Charge(Member& member, std::size_t bytes) noexcept {
    FairTurn& turn = TurnOf(member);
    virtual_time_ = turn.tag_;
    turn.tag_ += (std::uint64_t{bytes} << kTagBits) / turn.weight_;
  }

 private:
  static constexpr int kTagBits = 8;

  static FairTurn& TurnOf(Member& member) noexcept { return member; }
  static bool Before(std::uint64_t a, std::uint64_t b) noexcept {
    return static_cast<std::int64_t>(a - b) < 0;
  }

  std::vector<Member*> members_;
  std::uint64_t virtual_time_ = 0;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_COLLECTIVES_FAIR_TURNS_H_
