// Several nodes in one process: the reference that real backends are compared with.
#ifndef RINGD_BACKENDS_LOOPBACK_LOOPBACK_HUB_H_
#define RINGD_BACKENDS_LOOPBACK_LOOPBACK_HUB_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "proto/base/mutex.h"

namespace ringd {

// One collective of a group: every node lays down its input, the last one computes the result,
// every node takes it away.
struct LoopbackExchange {
  std::uint64_t fingerprint = 0;                      // of the first request
  NodeIndex first{-1};                                // who posted it
  NodeIndex disagrees{-1};                            // a node whose request differed
  std::vector<std::vector<std::byte>> contributions;  // by node
  std::vector<bool> contributed;                      // by node
  std::vector<bool> left;                             // by node: took the result, or gave up
  bool complete = false;
  std::vector<std::byte> result;
};

// Where the nodes meet. Nothing clever: inputs are copied in, combined in the order of the nodes,
// and copied out.
//
// Thread safety: each Transport may be driven by a thread of its own; what they share is under a
// mutex.
// Ownership: the state is shared by the transports, so the hub may go before them.
class LoopbackHub {
 public:
  LoopbackHub();
  ~LoopbackHub();

  // A node of this hub. Destroying it is the node's death, as far as the others can see.
  std::unique_ptr<Transport> CreateTransport();

  // What the transports of a hub share.
  struct State {
    Mutex mutex;
    int next_address ABSL_GUARDED_BY(mutex) = 0;
    std::set<std::string> dead ABSL_GUARDED_BY(mutex);            // addresses
    std::map<std::string, int> event_fds ABSL_GUARDED_BY(mutex);  // by address of a living node
    std::map<std::uint64_t, std::map<OperationId, LoopbackExchange>> groups
        ABSL_GUARDED_BY(mutex);  // by wire id
  };

 private:
  std::shared_ptr<State> state_;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_LOOPBACK_LOOPBACK_HUB_H_
