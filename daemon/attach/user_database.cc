#include "daemon/attach/user_database.h"

#include <grp.h>
#include <pwd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace ringd {
namespace {

constexpr std::size_t kMaxDatabaseBuffer = std::size_t{1} << 20;

// As which glibc, or a module of the database, says that there is no such entry (getpwnam(3)).
bool MeansNone(int error) {
  return error == 0 || error == ENOENT || error == ESRCH || error == EBADF || error == EPERM;
}

// Calls a get..._r function with a buffer that grows as it asks. Nothing: there is no such entry.
template <typename Entry, typename Function>
absl::StatusOr<std::optional<std::vector<char>>> Query(Entry& entry, Function function) {
  for (std::size_t bytes = 1024; bytes <= kMaxDatabaseBuffer; bytes *= 4) {
    std::vector<char> buffer(bytes);
    Entry* found = nullptr;
    const int error = function(&entry, buffer.data(), buffer.size(), &found);
    if (error == ERANGE) continue;
    if (!MeansNone(error)) {
      return absl::UnavailableError(
          absl::StrCat("the user database can't be asked: ", std::strerror(error)));
    }
    if (found == nullptr) return std::nullopt;
    return buffer;
  }
  return absl::UnavailableError("the user database's answer is longer than a mebibyte");
}

}  // namespace

absl::StatusOr<std::optional<UserEntry>> FindUser(uid_t uid) {
  passwd entry{};
  const auto buffer =
      Query(entry, [uid](passwd* out, char* data, std::size_t size, passwd** found) {
        return getpwuid_r(uid, out, data, size, found);
      });
  if (!buffer.ok()) return buffer.status();
  if (!buffer->has_value()) return std::nullopt;
  return UserEntry{entry.pw_name, entry.pw_uid, entry.pw_gid};
}

absl::StatusOr<std::optional<uid_t>> UidOf(const std::string& name) {
  std::uint32_t number = 0;
  if (absl::SimpleAtoi(name, &number)) return number;
  passwd entry{};
  const auto buffer =
      Query(entry, [&name](passwd* out, char* data, std::size_t size, passwd** found) {
        return getpwnam_r(name.c_str(), out, data, size, found);
      });
  if (!buffer.ok()) return buffer.status();
  if (!buffer->has_value()) return std::nullopt;
  return entry.pw_uid;
}

absl::StatusOr<std::optional<gid_t>> GidOf(const std::string& name) {
  std::uint32_t number = 0;
  if (absl::SimpleAtoi(name, &number)) return number;
  group entry{};
  const auto buffer =
      Query(entry, [&name](group* out, char* data, std::size_t size, group** found) {
        return getgrnam_r(name.c_str(), out, data, size, found);
      });
  if (!buffer.ok()) return buffer.status();
  if (!buffer->has_value()) return std::nullopt;
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

std::string DescribeUser(uid_t uid) {
  const absl::StatusOr<std::optional<UserEntry>> user = FindUser(uid);
  const bool known = user.ok() && user->has_value();
  return known ? absl::StrCat("user ", (*user)->name, " (uid ", uid, ")")
               : absl::StrCat("uid ", uid, " (unknown to this node's user database)");
}

absl::StatusOr<bool> IsInOneOf(uid_t uid, const std::set<gid_t>& groups) {
  if (groups.empty()) return false;
  const absl::StatusOr<std::optional<UserEntry>> user = FindUser(uid);
  if (!user.ok()) return user.status();
  if (!user->has_value()) return false;
  for (const gid_t group : GroupsOf(**user)) {
    if (groups.contains(group)) return true;
  }
  return false;
}

}  // namespace ringd
