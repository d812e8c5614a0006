// The key that the ringds of a cluster share, from the file of `cluster_key_file`.
#ifndef RINGD_DAEMON_DOOR_CLUSTER_KEY_H_
#define RINGD_DAEMON_DOOR_CLUSTER_KEY_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace ringd {

inline constexpr std::size_t kLeastClusterKeyBytes = 32;
inline constexpr std::size_t kMostClusterKeyBytes = 4096;

// The file's content without line ends behind it. Empty for an empty path: there is no key.
//   kPermissionDenied: others than its user could read or change it; or it is another user's than
//   this process's and root's.
//   kInvalidArgument: it is too short, too long, or no regular file.
//   Else what the kernel says. All name the file.
absl::StatusOr<std::string> ReadClusterKey(const std::string& path);

}  // namespace ringd

#endif  // RINGD_DAEMON_DOOR_CLUSTER_KEY_H_
