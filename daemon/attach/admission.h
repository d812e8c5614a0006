// Decides whose processes are served, and how many trainers at once.
#ifndef RINGD_DAEMON_ATTACH_ADMISSION_H_
#define RINGD_DAEMON_ATTACH_ADMISSION_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/config/config.h"
#include "proto/base/mutex.h"
#include "proto/base/unix_socket.h"

namespace ringd {

// Admitted are ringd's own user, root, and whom allowed_users and allowed_groups name.
//
// Thread safety: all methods from any thread; CheckUser may ask the system's user database, which may
//   be slow.
// Ownership: places outlive this object safely.
class Admission {
 public:
  //   kInvalidArgument: allowed_users or allowed_groups names somebody who does not exist.
  static absl::StatusOr<Admission> Create(const Config& config);

  // kPermissionDenied: the message says who is refused and which setting would admit them.
  absl::Status CheckUser(const PeerCredentials& peer) const;

  // Takes a place among the sessions, given back when the last copy of the pointer goes.
  //   kResourceExhausted: too many; the message names the limit and its setting.
  absl::StatusOr<std::shared_ptr<const void>> TakePlace(uid_t uid);

 private:
  // Shared with the places.
  struct Places {
    Mutex mutex;
    std::uint64_t total ABSL_GUARDED_BY(mutex) = 0;
    std::map<uid_t, std::uint64_t> by_user ABSL_GUARDED_BY(mutex);
  };

  Admission() = default;
  bool IsMember(const PeerCredentials& peer) const;

  bool everybody_ = false;
  std::set<uid_t> users_;
  std::set<gid_t> groups_;
  std::uint64_t max_sessions_ = 0;
  std::uint64_t max_sessions_per_user_ = 0;
  std::shared_ptr<Places> places_ = std::make_shared<Places>();
};

}  // namespace ringd

#endif  // RINGD_DAEMON_ATTACH_ADMISSION_H_
