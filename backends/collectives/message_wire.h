// What the collectives ask of a network: messages to a node, nothing more.
#ifndef RINGD_BACKENDS_COLLECTIVES_MESSAGE_WIRE_H_
#define RINGD_BACKENDS_COLLECTIVES_MESSAGE_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "backends/collectives/message.h"
#include "backends/communicator.h"
#include "proto/types/ids.h"

namespace ringd {

// Whoever's bytes are being sent.
class SendObserver {
 public:
  // One message of this observer to `to` is done with: its payload is not read any more. Also when
  // it was withdrawn or the node was lost.
  virtual void OnSent(NodeIndex to) noexcept = 0;
  // Of bulk that waits for one line, an observer's with a lower number goes first.
  virtual std::uint64_t order() const noexcept = 0;

 protected:
  ~SendObserver() = default;
};

enum class SendPriority : std::uint8_t {
  kUrgent,  // overtakes what waits: grants, and messages of operations whose time is latency
  kBulk,
};

// The network as one communicator sees it. Messages to one node may arrive in any order, each
// exactly once and whole, as long as neither side is lost.
//
// Thread safety: one thread, the progress thread.
// Ownership: payloads stay the sender's, until Send() has returned true or OnSent() was called.
class MessageWire {
 public:
  virtual ~MessageWire() = default;

  // Sends header and payload (at most kMaxPayloadBytes). True: done with the payload already, and
  // the observer is not called. False: it is called once, later, never from inside this call. To a
  // lost node messages are dropped (true). `observer` may be null only for an empty payload.
  virtual bool Send(NodeIndex to, const MessageHeader& header, std::span<const std::byte> payload,
                    SendPriority priority, SendObserver* observer) noexcept = 0;

  // Forgets the messages of `observer` that the network has not begun with, with OnSent() for each.
  // Others end as usual.
  virtual void Withdraw(SendObserver* observer) noexcept = 0;

  // What carries bytes to `node`; nothing if not known (yet).
  virtual NeighbourLine DescribeLine(NodeIndex node) const = 0;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_COLLECTIVES_MESSAGE_WIRE_H_
