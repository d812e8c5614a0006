// The private ringds that `ringctl run` has started for this user.
#ifndef RINGD_CLIENT_CLI_QUERY_PRIVATE_RINGDS_H_
#define RINGD_CLIENT_CLI_QUERY_PRIVATE_RINGDS_H_

#include <string>
#include <vector>

namespace ringd::cli {

// Where `ringctl run` makes a run's folder, for mkdtemp; in it a folder for each node, by number,
// with the socket in it.
inline constexpr char kPrivateParent[] = "/tmp";
inline constexpr char kPrivateName[] = "ringd-XXXXXX";
inline constexpr char kPrivateSocket[] = "ringd.sock";

// The sockets of this user's runs below `parent` at which somebody listens, sorted, a limited
// number of them. Folders and sockets of others, or into which others may write, are passed over.
std::vector<std::string> PrivateSockets(const std::string& parent);
// The same but for `asked`, for who has asked there in vain: a line without its end; empty: none.
std::string DescribePrivateRingds(const std::string& asked);

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_QUERY_PRIVATE_RINGDS_H_
