// Where the TCP backend gets its connections: from outside, connected and proven.
#ifndef RINGD_BACKENDS_TCP_WIRE_SOCKETS_H_
#define RINGD_BACKENDS_TCP_WIRE_SOCKETS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "backends/communicator.h"
#include "proto/base/unique_fd.h"
#include "proto/types/ids.h"

namespace ringd {

// Who may connect for a communicator, and to whom it connects.
struct WireMembership {
  std::uint64_t wire_id = 0;
  NodeIndex self;
  std::string key;                      // as CommunicatorSpec::key
  std::vector<std::string> addresses;   // by node: as wire_address.h says
  std::vector<std::string> node_names;  // by node: for error texts
};

// Listens and dials for the backend: this side knows nothing of handshakes, and the other nothing
// of messages. Whoever implements it has shown, before a connection is handed over, that the other
// end belongs to the communicator, and is the node that it says.
//
// Thread safety: the progress thread. Implementations have threads of their own, or work in Take().
// Ownership: an event's socket is the taker's.
class WireSockets {
 public:
  virtual ~WireSockets() = default;

  // What others dial, as wire_address.h says. Never changes.
  virtual const std::string& LocalAddress() const = 0;

  // Readable when Take() has something to return or to do. For epoll, level triggered.
  virtual int event_fd() const = 0;

  // From now on connections for this wire id are let in. Before, those who dial try again.
  // Requirement: not open.
  virtual void Open(const WireMembership& membership) = 0;

  // No event of this wire id is returned any more; what is being dialled is given up.
  virtual void Close(std::uint64_t wire_id) = 0;

  // Begins to connect to the interface that the stream goes to (wire_address.h); ends in one event.
  // Requirement: the wire id is open.
  virtual void Dial(std::uint64_t wire_id, NodeIndex to, std::uint32_t stream) = 0;

  // A connection that was opened by either side, or could not be opened by this one.
  struct Event {
    std::uint64_t wire_id = 0;
    NodeIndex node;  // the other end
    std::uint32_t stream = 0;
    bool dialled_here = false;
    absl::Status status;  // if not OK: why there is no socket, naming address and cause
    UniqueFd socket;      // nothing but frames has been and will be read from it
  };
  // What has happened since the last call. Does not block.
  virtual std::vector<Event> Take() = 0;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_TCP_WIRE_SOCKETS_H_
