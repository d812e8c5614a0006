// A process that has taken its place in a job in good order, and then looks at what ringd has
// handed it: memory and descriptors, found as any program finds its own, whatever the library calls
// them.
#ifndef RINGD_TESTS_SOAK_ATTACKERS_MEMBER_H_
#define RINGD_TESTS_SOAK_ATTACKERS_MEMBER_H_

#include <cstddef>
#include <string>
#include <vector>

#include "client/ringd.h"

namespace ringd::soak {

// A mapping that is shared with ringd or with other ranks.
struct SharedMemory {
  std::string name;  // the memfd's: "ringd-rank-exchange"
  std::byte* base = nullptr;
  std::size_t bytes = 0;
};

// This process's mappings of memfds whose name begins with `prefix`.
std::vector<SharedMemory> SharedMemories(const std::string& prefix);
// This process's eventfds, and its connected TCP sockets.
std::vector<int> EventDescriptors();
std::vector<int> TcpSockets();
// For each of its epoll descriptors: what that watches.
std::vector<std::vector<int>> WatchedTogether();

// Joins the job that the environment names. Null if it was refused, which is told (Did).
ringd_context* JoinFromEnvironment();
// Joins a job of its own on this node; rank < 0: alone. Null if it was refused; ringd_last_error
// says why.
ringd_context* JoinLocally(const std::string& socket, const std::string& job, int rank, int size);

}  // namespace ringd::soak

#endif  // RINGD_TESTS_SOAK_ATTACKERS_MEMBER_H_
