#include "daemon/attach/admission.h"

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace ringd {
namespace {

constexpr std::size_t kMaxDatabaseBuffer = std::size_t{1} << 20;

struct UserEntry {
  std::string name;
  uid_t uid = 0;
  gid_t gid = 0;
};

// Calls a get..._r function with a buffer that grows as it asks.
template <typename Entry, typename Function>
std::optional<std::vector<char>> Query(Entry& entry, Function function) {
  for (std::size_t bytes = 1024; bytes <= kMaxDatabaseBuffer; bytes *= 4) {
    std::vector<char> buffer(bytes);
    Entry* found = nullptr;
    const int error = function(&entry, buffer.data(), buffer.size(), &found);
    if (error == ERANGE) continue;
    if (error != 0 || found == nullptr) return std::nullopt;
    return buffer;
  }
  return std::nullopt;
}

std::optional<UserEntry> FindUser(uid_t uid) {
  passwd entry{};
  const auto buffer =
      Query(entry, [uid](passwd* out, char* data, std::size_t size, passwd** found) {
        return getpwuid_r(uid, out, data, size, found);
      });
  if (!buffer.has_value()) return std::nullopt;
  return UserEntry{entry.pw_name, entry.pw_uid, entry.pw_gid};
}

std::optional<uid_t> UidOf(const std::string& name) {
  std::uint32_t number = 0;
  if (absl::SimpleAtoi(name, &number)) return number;
  passwd entry{};
  const auto buffer =
      Query(entry, [&name](passwd* out, char* data, std::size_t size, passwd** found) {
        return getpwnam_r(name.c_str(), out, data, size, found);
      });
  if (!buffer.has_value()) return std::nullopt;
  return entry.pw_uid;
}

std::optional<gid_t> GidOf(const std::string& name) {
  std::uint32_t number = 0;
  if (absl::SimpleAtoi(name, &number)) return number;
  group entry{};
  const auto buffer =
      Query(entry, [&name](group* out, char* data, std::size_t size, group** found) {
        return getgrnam_r(name.c_str(), out, data, size, found);
      });
  if (!buffer.has_value()) return std::nullopt;
  return entry.gr_gid;
}

std::vector<gid_t> GroupsOf(const UserEntry& user) {
  int count = 64;
  std::vector<gid_t> groups(static_cast<std::size_t>(count));
  if (getgrouplist(user.name.c_str(), user.gid, groups.data(), &count) < 0) {
    // `count` is now what is needed.
    groups.resize(static_cast<std::size_t>(count));
    if (getgrouplist(user.name.c_str(), user.gid, groups.data(), &count) < 0) return {user.gid};
  }
  groups.resize(static_cast<std::size_t>(count));
  return groups;
}

}  // namespace

absl::StatusOr<Admission> Admission::Create(const Config& config) {
  Admission admission;
  admission.max_sessions_ = config.max_sessions;
  admission.max_sessions_per_user_ = config.max_sessions_per_user;
  admission.users_ = {0, geteuid()};
  for (const std::string& name : config.allowed_users) {
    if (name == "*") {
      admission.everybody_ = true;
      continue;
    }
    const std::optional<uid_t> uid = UidOf(name);
    if (!uid.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("allowed_users: there is no user '", name, "'"));
    }
    admission.users_.insert(*uid);
  }
  for (const std::string& name : config.allowed_groups) {
    const std::optional<gid_t> gid = GidOf(name);
    if (!gid.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("allowed_groups: there is no group '", name, "'"));
    }
    admission.groups_.insert(*gid);
  }
  return admission;
}

bool Admission::IsMember(const PeerCredentials& peer) const {
  if (groups_.empty()) return false;
  if (groups_.contains(peer.gid)) return true;
  const std::optional<UserEntry> user = FindUser(peer.uid);
  if (!user.has_value()) return false;
  for (const gid_t group : GroupsOf(*user)) {
    if (groups_.contains(group)) return true;
  }
  return false;
}

absl::Status Admission::CheckUser(const PeerCredentials& peer) const {
  if (everybody_ || users_.contains(peer.uid) || IsMember(peer)) return absl::OkStatus();
  const std::optional<UserEntry> user = FindUser(peer.uid);
  const std::string who = user.has_value()
                              ? absl::StrCat("user ", user->name, " (uid ", peer.uid, ")")
                              : absl::StrCat("uid ", peer.uid);
  return absl::PermissionDeniedError(
      absl::StrCat(who,
                   " is not admitted by this ringd; its settings allowed_users and "
                   "allowed_groups would admit them"));
}

absl::StatusOr<std::shared_ptr<const void>> Admission::TakePlace(uid_t uid) {
  const std::shared_ptr<Places> places = places_;
  MutexLock lock(places->mutex);
  if (places->total >= max_sessions_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "all ", max_sessions_, " places for trainers are taken (setting max_sessions)"));
  }
  std::uint64_t& of_user = places->by_user[uid];
  if (of_user >= max_sessions_per_user_) {
    return absl::ResourceExhaustedError(absl::StrCat("all ", max_sessions_per_user_,
                                                     " places for trainers of uid ", uid,
                                                     " are taken (setting max_sessions_per_user)"));
  }
  ++of_user;
  ++places->total;
  // The pointer's target is of no interest; its end is.
  return std::shared_ptr<const void>(places.get(), [places, uid](const void*) {
    MutexLock guard(places->mutex);
    --places->total;
    const auto entry = places->by_user.find(uid);
    if (--entry->second == 0) places->by_user.erase(entry);
  });
}

}  // namespace ringd
