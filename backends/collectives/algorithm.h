// One way of carrying out a collective, seen from one node.
#ifndef RINGD_BACKENDS_COLLECTIVES_ALGORITHM_H_
#define RINGD_BACKENDS_COLLECTIVES_ALGORITHM_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/types/ids.h"

namespace ringd {

class Operation;

// What became of a message that was offered to an algorithm.
enum class MessageVerdict : std::uint8_t {
  kConsumed,  // its bytes are where they belong
  kNotYet,    // it is expected, but its destination is not ready: offer it again after Advance()
  kInvalid,   // no message that a correct peer sends: wrong number, wrong length, or a second copy
};

// A state machine without threads, clocks or sockets: it sends through its Operation, and is told
// what arrives. It must take messages in any order, since several connections may carry them.
//
// Thread safety: the progress thread only.
// Ownership: none; objects are reused for one operation after another and keep their capacity.
class CollectiveAlgorithm {
 public:
  virtual ~CollectiveAlgorithm() = default;

  // Forgets the operation before, and declares to `operation` whom it sends to and receives from.
  virtual void Begin(Operation& operation) = 0;

  // Sends what can be sent now; does a bounded amount of work. True if it stopped only because
  // of that bound: call again soon.
  virtual bool Advance() noexcept = 0;

  virtual MessageVerdict OnMessage(NodeIndex from, std::uint32_t index,
                                   std::span<const std::byte> payload) noexcept = 0;

  // Everything was received and every send was begun (not necessarily ended).
  virtual bool IsComplete() const noexcept = 0;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_COLLECTIVES_ALGORITHM_H_
