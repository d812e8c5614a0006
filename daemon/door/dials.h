// All connections that are being opened from here.
#ifndef RINGD_DAEMON_DOOR_DIALS_H_
#define RINGD_DAEMON_DOOR_DIALS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "backends/congestion_control.h"
#include "daemon/door/dial.h"
#include "daemon/door/dial_turns.h"
#include "proto/base/clock.h"

namespace ringd {

// Thread safety: none; the door's thread owns it.
// Invariant: each request's `done` is called once, unless it was abandoned or cleared before.
class Dials {
 public:
  // Attempts at once; those beyond wait for their turn, which each user has (dial_turns.h).
  static constexpr std::size_t kMostSockets = 256;

  // `epoll` gets the connections, with their keys, and outlives this.
  Dials(int epoll, std::string own_name, CongestionControl congestion_control);

  void Add(DialRequest request, Clock::time_point now);
  void Abandon(std::uint64_t group);
  // Whether a Hello with this nonce was sent from here and is not answered.
  bool IsOwn(const DoorNonce& nonce) const noexcept;
  // Something happened to the connection of this key; unknown ones are ignored.
  void OnEvent(std::uint64_t key, Clock::time_point now);
  // Begins what is to be begun, and ends attempts whose time is over: some of them, so that others
  // have their turn on this thread. Call it again and again.
  void RunDue(Clock::time_point now);

  // When RunDue has to be called; time_point::max(): nothing is to be done.
  Clock::time_point NextDue() const noexcept;
  void Clear();

 private:
  using Entries = std::map<std::uint64_t, Dial>;

  static constexpr int kMostAtOnce = 64;

  // It does not connect any more: its turn is another's.
  void LeaveTurn(Entries::iterator entry);
  void Erase(Entries::iterator entry);
  // An attempt, as soon as it is its turn.
  void Begin(Entries::iterator entry, Clock::time_point now);
  // Now: it is.
  void Attempt(Entries::iterator entry, Clock::time_point now);
  // Begins some of those whose turn it has become.
  void TakeTurns(Clock::time_point now);
  void Follow(Entries::iterator entry, Dial::Progress progress);
  void SetDue(std::uint64_t key, Clock::time_point due);

  const int epoll_;
  const std::string own_name_;
  const CongestionControl congestion_control_;
  Entries entries_;
  std::map<std::uint64_t, std::set<std::uint64_t>> groups_;  // their keys
  DialTurns turns_{kMostSockets};
  bool turns_left_ = false;                         // there may be more whose turn it is
  std::map<std::uint64_t, Clock::time_point> due_;  // by key
  std::set<std::pair<Clock::time_point, std::uint64_t>> queue_;  // the same, by time
  std::set<std::uint64_t> connecting_;                           // those whose turn it is
  std::uint64_t next_key_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_DOOR_DIALS_H_
