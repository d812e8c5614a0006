// How many trainers of each user may be attached at once, so that no user can keep the others out.
#ifndef RINGD_DAEMON_ATTACH_SESSION_PLACES_H_
#define RINGD_DAEMON_ATTACH_SESSION_PLACES_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/statusor.h"
#include "proto/base/mutex.h"

namespace ringd {

// Of all places some are kept: a few for root, and a pool for users who have few or none. A user's
// first places come out of the pool, so the others can use all that is free but never what is kept.
//
// Thread safety: all methods from any thread.
// Ownership: places outlive this object safely.
// Invariant: the places that are taken and those that are kept are together at most Limits::total,
//   unless that was more before.
class SessionPlaces {
 public:
  struct Limits {
    std::uint64_t total = 0;
    std::uint64_t per_user = 0;
    bool is_a_quarter = false;  // nobody has set per_user; root and own_user are not bound by it
    uid_t own_user = 0;         // ringd's
    std::uint64_t kept_for_root = 0;
    std::uint64_t kept_for_newcomers = 0;
    // How many places of each user count as his first ones.
    std::uint64_t first_places = 0;
  };

  // What the settings max_sessions and max_sessions_per_user mean. kAutoCount for `per_user`: a
  // quarter of `total`; root and ringd's own user may then take all that is not kept. With `shared`
  // false nobody else is admitted, so nothing is kept for others than root.
  static Limits LimitsFor(std::uint64_t total, std::uint64_t per_user, bool shared, uid_t own_user);

  explicit SessionPlaces(const Limits& limits) : limits_(limits) {}

  // From now on. Places that are taken stay taken, also if they are more.
  void SetLimits(const Limits& limits);

  // Takes a place, given back when the last copy of the pointer goes.
  //   kResourceExhausted: the message says how many the user has, the limit and its setting; its
  //   subject, the user, is left to who knows names.
  absl::StatusOr<std::shared_ptr<const void>> Take(uid_t uid);

 private:
  // Shared with the places.
  struct Taken {
    Mutex mutex;
    std::uint64_t total ABSL_GUARDED_BY(mutex) = 0;
    std::map<uid_t, std::uint64_t> by_user ABSL_GUARDED_BY(mutex);
  };

  static bool HasOwnLimit(const Limits& limits, uid_t uid) noexcept {
    return !limits.is_a_quarter || (uid != 0 && uid != limits.own_user);
  }
  // How many places are to be kept free with these taken.
  static std::uint64_t KeptForRoot(const Limits& limits,
                                   const std::map<uid_t, std::uint64_t>& by_user);
  static std::uint64_t KeptForNewcomers(const Limits& limits,
                                        const std::map<uid_t, std::uint64_t>& by_user);

  Mutex limits_mutex_;
  Limits limits_ ABSL_GUARDED_BY(limits_mutex_);
  const std::shared_ptr<Taken> taken_ = std::make_shared<Taken>();
};

}  // namespace ringd

#endif  // RINGD_DAEMON_ATTACH_SESSION_PLACES_H_
