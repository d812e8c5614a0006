// Decides whose processes are served, and how many trainers at once.
#ifndef RINGD_DAEMON_ATTACH_ADMISSION_H_
#define RINGD_DAEMON_ATTACH_ADMISSION_H_

#include <sys/types.h>

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/attach/session_places.h"
#include "daemon/config/config.h"
#include "proto/base/unix_socket.h"

namespace ringd {

// What is known of a user.
struct UserVerdict {
  // kPermissionDenied: the message says who is refused and which setting would admit him.
  absl::Status admitted;
  // He may see all users' jobs: root, ringd's own user, a member of operators_group.
  bool is_operator = false;
};

// Admitted are ringd's own user, root, and whom allowed_users and allowed_groups name.
//
// Thread safety: all methods from any thread. Create, Renew and Ask ask the system's user database,
//   which may be slow; the others do not.
// Ownership: places outlive this object safely.
class Admission {
 public:
  //   kInvalidArgument: allowed_users, allowed_groups or operators_group names somebody who does
  //   not exist.
  static absl::StatusOr<Admission> Create(const Config& config);
  // The same for other settings, with the places of this one, of which those that are taken stay
  // taken. Their number is the former one until TakeEffect.
  absl::StatusOr<Admission> Renew(const Config& config) const;
  void TakeEffect() { places_->SetLimits(limits_); }

  // May take as long as the user database does.
  UserVerdict Ask(const PeerCredentials& peer) const;
  // True if Ask would admit it without asking the user database.
  bool AdmitsAtSight(const PeerCredentials& peer) const;
  // What Ask would say, if that does not depend on the user database.
  std::optional<UserVerdict> AtSight(const PeerCredentials& peer) const;
  // Of one whom AdmitsAtSight; operators are told as far as that is known without the database.
  std::optional<UserVerdict> AdmittedAtSight(const PeerCredentials& peer) const;

  // Takes a place among the sessions, given back when the last copy of the pointer goes.
  //   kResourceExhausted: too many; the message names the user, the limit and its setting.
  absl::StatusOr<std::shared_ptr<const void>> TakePlace(uid_t uid);

 private:
  Admission() = default;

  // As far as that is known without the user database.
  bool IsOperatorAtSight(const PeerCredentials& peer) const;

  static absl::Status NotAdmitted(const std::string& who);
  absl::Status TakeNames(const Config& config);
  SessionPlaces::Limits LimitsOf(const Config& config) const;

  bool everybody_ = false;
  std::set<uid_t> users_;
  std::set<gid_t> groups_;
  uid_t own_user_ = 0;
  std::set<gid_t> operators_;  // at most one
  SessionPlaces::Limits limits_;
  std::shared_ptr<SessionPlaces> places_;  // shared: this object is moved, and a mutex is not
};

}  // namespace ringd

#endif  // RINGD_DAEMON_ATTACH_ADMISSION_H_
