// The one interface through which the daemon moves bytes between nodes.
//
// Each folder beside this file implements it for one way of moving bytes: loopback (several nodes
// in one process, the reference), ucx (host memory over TCP, RDMA, shared memory), tcp (host memory
// over connections of our own). How the parts work together is in README.md.
#ifndef RINGD_BACKENDS_BACKEND_H_
#define RINGD_BACKENDS_BACKEND_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/collective_request.h"
#include "backends/communicator.h"

namespace ringd {

class LineShares;

inline constexpr int kAutoStreams = 0;

// What a factory needs to know to make a Transport; each backend's header declares its factory,
// e.g. `absl::StatusOr<std::unique_ptr<Transport>> CreateUcxTransport(const TransportOptions&)`.
struct TransportOptions {
  // Network interfaces to send and receive on ("lo", "eth0", "mlx5_0:1"). Never guessed: a bridge
  // of some container is not taken by accident. Empty: all there are, such bridges too.
  std::vector<std::string> interfaces = {"lo"};
  // What may carry bytes, as UCX names it: "tcp,self", or "all" for whatever it finds best.
  std::string transports = "tcp,self";
  // Connections for bulk to each neighbour. kAutoStreams: one, or one for each interface where the
  // backend chooses between them itself.
  int streams_per_neighbour = kAutoStreams;
  // TCP's congestion control of connections that ringd makes itself, not of a library's: "auto"
  // (the system's, but nothing that pauses), "system", or a name, such as "cubic".
  std::string congestion_control = "auto";
  // This process's shares of lines that others of the node send on, too (tcp/line_shares.h); null:
  // there are no others. Outlives the transport.
  LineShares* line_shares = nullptr;
  // Takes lines for a log, of what the transport decides by itself; on the progress thread. May be
  // empty.
  std::function<void(const std::string&)> log = nullptr;
  // The same for errors; on any thread. Empty: log takes them.
  std::function<void(const std::string&)> log_error = nullptr;
};

// A node's access to one kind of network: owns connections and moves bytes for all communicators.
//
// Thread safety: everything, the communicators' methods included, runs on one thread: the progress
//   thread.
// Ownership: owns all vendor handles. Communicators are the caller's, and must be destroyed first.
class Transport {
 public:
  virtual ~Transport() = default;

  // "ucx", "loopback".
  virtual absl::string_view name() const noexcept = 0;

  // Opaque bytes by which other nodes reach this one; the daemons exchange them on the control
  // path.
  virtual const std::string& LocalAddress() const noexcept = 0;

  // Readable when Progress() has something to do, if the last Arm() returned true. For epoll, level
  // triggered; Progress() drains it. Never changes, never closed by the caller.
  virtual int event_fd() const noexcept = 0;

  // Prepares for sleeping on event_fd(). False: work is pending, call Progress() first.
  [[nodiscard]] virtual bool Arm() noexcept = 0;

  // Advances everything without blocking and returns the amount of work done; 0: nothing to do now.
  virtual std::size_t Progress() noexcept = 0;

  // Other nodes still have communicators that are no more here, and would take this transport's end
  // for the loss of a node.
  virtual bool Lingers() const noexcept { return false; }

  // Makes this node's end of a communicator. Does not block and does not wait for the others: they
  // are connected when first needed, and a message may come before its communicator exists here.
  //   kInvalidArgument: the spec does not make sense (self out of range, a malformed address).
  //   kAlreadyExists: this transport has a communicator of that wire id and node.
  //   kUnavailable: a node's address can't be used from here; the message names the node.
  virtual absl::StatusOr<std::unique_ptr<Communicator>> CreateCommunicator(
      const CommunicatorSpec& spec) = 0;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_BACKEND_H_
