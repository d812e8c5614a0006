// What would keep a ringd from starting, or from keeping what it learns: found out before, for
// --check-config.
#ifndef RINGD_DAEMON_SERVICE_START_CHECK_H_
#define RINGD_DAEMON_SERVICE_START_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "daemon/config/config.h"

namespace ringd {

// Says of users and groups, peer_address, the engine's program and the paths of the configuration
// all that is wrong, in sentences that name the setting. Makes, opens for others and changes
// nothing, and does not mind a ringd that runs. `config` is complete (ResolveNetwork). May ask the
// user database and a name server.
//
// A folder that the service manager makes before a start (the default ones of socket and state_dir)
// need not be there.
std::vector<std::string> FindStartProblems(const Config& config);

// What lets ringd start and is hardly meant so, in sentences. Does not block.
std::vector<std::string> FindStartWarnings(const Config& config);

// The address is one of this machine's, and this process may listen on its port. One that somebody
// listens on already is good: a ringd that runs does.
absl::Status CheckPeerAddress(const std::string& address);

// kFailedPrecondition: what ringd learns can't be kept in this state_dir; the message says why. An
// empty one is good: nothing is kept then.
absl::Status CheckStateDir(const std::string& state_dir);

}  // namespace ringd

#endif  // RINGD_DAEMON_SERVICE_START_CHECK_H_
