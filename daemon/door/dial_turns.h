// Whose dial may have a socket next.
#ifndef RINGD_DAEMON_DOOR_DIAL_TURNS_H_
#define RINGD_DAEMON_DOOR_DIAL_TURNS_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace ringd {

// All users share so many sockets. A user has no more of them than are free, so something is always
// left for another one, and the next turn is that of the user who has fewest.
//
// Thread safety: none; the door's thread owns it.
class DialTurns {
 public:
  explicit DialTurns(std::size_t sockets) : free_(sockets) {}

  // True: it is this dial's turn, until Release. False: it waits for Next, or Forget.
  bool Take(uid_t user, std::uint64_t key);
  void Release(uid_t user);
  // A dial that has waited and whose turn it is now.
  std::optional<std::uint64_t> Next();
  bool IsWaiting(std::uint64_t key) const { return waiting_.contains(key); }
  // It waits no longer, if it did.
  void Forget(std::uint64_t key);
  void Clear();

 private:
  struct User {
    std::size_t sockets = 0;
    std::set<std::pair<std::uint64_t, std::uint64_t>> waiting;  // in order of arrival, and the key
  };
  struct Place {
    uid_t user = 0;
    std::uint64_t arrival = 0;
  };
  using Users = std::map<uid_t, User>;

  bool MayTake(const User& user) const noexcept { return user.sockets < free_; }
  void EraseIfIdle(Users::iterator user);

  std::size_t free_;
  std::uint64_t last_arrival_ = 0;
  Users users_;                             // who have a socket, or wait
  std::map<std::uint64_t, Place> waiting_;  // by key
};

}  // namespace ringd

#endif  // RINGD_DAEMON_DOOR_DIAL_TURNS_H_
