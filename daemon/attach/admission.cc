#include "daemon/attach/admission.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "daemon/attach/user_database.h"

namespace ringd {
namespace {

// The number that the database has for a name of this setting.
template <typename Id>
absl::StatusOr<Id> Known(absl::StatusOr<std::optional<Id>> id, absl::string_view setting,
                         absl::string_view kind, const std::string& name) {
  if (!id.ok()) {
    return absl::Status(id.status().code(),
                        absl::StrCat(setting, ": '", name, "': ", id.status().message()));
  }
  if (id->has_value()) return **id;
  return absl::InvalidArgumentError(absl::StrCat(setting, ": there is no ", kind, " '", name, "'"));
}

}  // namespace

absl::StatusOr<Admission> Admission::Create(const Config& config) {
  Admission admission;
  if (absl::Status status = admission.TakeNames(config); !status.ok()) return status;
  admission.limits_ = admission.LimitsOf(config);
  admission.places_ = std::make_shared<SessionPlaces>(admission.limits_);
  return admission;
}

absl::StatusOr<Admission> Admission::Renew(const Config& config) const {
  Admission admission;
  if (absl::Status status = admission.TakeNames(config); !status.ok()) return status;
  admission.limits_ = admission.LimitsOf(config);
  admission.places_ = places_;
  return admission;
}

absl::Status Admission::TakeNames(const Config& config) {
  own_user_ = geteuid();
  users_ = {0, own_user_};
  for (const std::string& name : config.allowed_users) {
    if (name == "*") {
      everybody_ = true;
      continue;
    }
    const absl::StatusOr<uid_t> uid = Known(UidOf(name), "allowed_users", "user", name);
    if (!uid.ok()) return uid.status();
    users_.insert(*uid);
  }
  for (const std::string& name : config.allowed_groups) {
    const absl::StatusOr<gid_t> gid = Known(GidOf(name), "allowed_groups", "group", name);
    if (!gid.ok()) return gid.status();
    groups_.insert(*gid);
  }
  if (!config.operators_group.empty()) {
    const std::string& name = config.operators_group;
    const absl::StatusOr<gid_t> gid = Known(GidOf(name), "operators_group", "group", name);
    if (!gid.ok()) return gid.status();
    operators_.insert(*gid);
  }
  return absl::OkStatus();
}

SessionPlaces::Limits Admission::LimitsOf(const Config& config) const {
  const bool shared = everybody_ || !groups_.empty() ||
                      std::any_of(users_.begin(), users_.end(),
                                  [this](uid_t uid) { return uid != 0 && uid != own_user_; });
  return SessionPlaces::LimitsFor(config.max_sessions, config.max_sessions_per_user, shared,
                                  own_user_);
}

bool Admission::AdmitsAtSight(const PeerCredentials& peer) const {
  return everybody_ || users_.contains(peer.uid) || groups_.contains(peer.gid);
}

bool Admission::IsOperatorAtSight(const PeerCredentials& peer) const {
  return peer.uid == 0 || peer.uid == own_user_ || operators_.contains(peer.gid);
}

absl::Status Admission::NotAdmitted(const std::string& who) {
  return absl::PermissionDeniedError(
      absl::StrCat(who,
                   " is not admitted by this ringd; its settings allowed_users and "
                   "allowed_groups would admit them. Without it: ringctl run -n RANKS -- COMMAND"));
}

std::optional<UserVerdict> Admission::AdmittedAtSight(const PeerCredentials& peer) const {
  if (!AdmitsAtSight(peer)) return std::nullopt;
  return UserVerdict{absl::OkStatus(), IsOperatorAtSight(peer)};
}

std::optional<UserVerdict> Admission::AtSight(const PeerCredentials& peer) const {
  const std::optional<UserVerdict> admitted = AdmittedAtSight(peer);
  if (!admitted.has_value()) {
    if (!groups_.empty()) return std::nullopt;
    // Anybody may come and be refused: the database is not asked for his name.
    return UserVerdict{NotAdmitted(absl::StrCat("uid ", peer.uid)), false};
  }
  if (!operators_.empty() && !admitted->is_operator) return std::nullopt;
  return admitted;
}

UserVerdict Admission::Ask(const PeerCredentials& peer) const {
  UserVerdict verdict;
  verdict.is_operator = IsOperatorAtSight(peer) || IsInOneOf(peer.uid, operators_).value_or(false);
  if (AdmitsAtSight(peer)) return verdict;
  const absl::StatusOr<bool> is_in_group = IsInOneOf(peer.uid, groups_);
  if (!is_in_group.ok()) {
    verdict.admitted =
        absl::Status(is_in_group.status().code(),
                     absl::StrCat("uid ", peer.uid, ": ", is_in_group.status().message()));
  } else if (!*is_in_group) {
    verdict.admitted = NotAdmitted(DescribeUser(peer.uid));
  }
  return verdict;
}

absl::StatusOr<std::shared_ptr<const void>> Admission::TakePlace(uid_t uid) {
  absl::StatusOr<std::shared_ptr<const void>> place = places_->Take(uid);
  if (place.ok()) return place;
  return absl::Status(place.status().code(),
                      absl::StrCat("uid ", uid, " ", place.status().message()));
}

}  // namespace ringd
