// One message on its way over a line.
#ifndef RINGD_BACKENDS_TCP_TCP_SEND_H_
#define RINGD_BACKENDS_TCP_TCP_SEND_H_

#include "backends/collectives/queued_send.h"
#include "backends/collectives/weighted_fair_queue.h"

namespace ringd {

class TcpLine;

struct TcpSend : QueuedSend<TcpSend> {
  TcpLine* line = nullptr;
};

// One line's bulk messages among those of all lines to the same ringd.
using TcpFlow = WeightedFairQueue<TcpSend>::Flow;

}  // namespace ringd

#endif  // RINGD_BACKENDS_TCP_TCP_SEND_H_
