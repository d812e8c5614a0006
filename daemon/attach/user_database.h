// What the system's user database says of users and groups.
//
// Thread safety: all from any thread. They may be slow: the database may be on another machine.
#ifndef RINGD_DAEMON_ATTACH_USER_DATABASE_H_
#define RINGD_DAEMON_ATTACH_USER_DATABASE_H_

#include <sys/types.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ringd {

struct UserEntry {
  std::string name;
  uid_t uid = 0;
  gid_t gid = 0;  // the primary group
};

// Nothing: the database has no such user.
//   kUnavailable: it can't be asked.
absl::StatusOr<std::optional<UserEntry>> FindUser(uid_t uid);

// By name or number, as FindUser. A number need not be in the database.
absl::StatusOr<std::optional<uid_t>> UidOf(const std::string& name);
absl::StatusOr<std::optional<gid_t>> GidOf(const std::string& name);

// The primary group among them.
std::vector<gid_t> GroupsOf(const UserEntry& user);

// True if the database has the user in one of `groups`. As FindUser.
absl::StatusOr<bool> IsInOneOf(uid_t uid, const std::set<gid_t>& groups);

// "user alice (uid 1001)", or "uid 1001 (unknown to this node's user database)": it has no such
// user, and so no groups of his, or does not answer.
std::string DescribeUser(uid_t uid);

}  // namespace ringd

#endif  // RINGD_DAEMON_ATTACH_USER_DATABASE_H_
