// A barrier in log2 N rounds.
#ifndef RINGD_BACKENDS_COLLECTIVES_DISSEMINATION_BARRIER_H_
#define RINGD_BACKENDS_COLLECTIVES_DISSEMINATION_BARRIER_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "backends/collectives/algorithm.h"

namespace ringd {

// The dissemination barrier (D. Hensgen, R. Finkel, U. Manber: Two algorithms for barrier
// synchronization, Int. J. Parallel Program. 17, 1988): in round k node i tells node i + 2^k, and
// waits for node i - 2^k. A message's index is its round; messages are empty.
class DisseminationBarrier final : public CollectiveAlgorithm {
 public:
  void Begin(Operation& operation) override;
  bool Advance() noexcept override;
  MessageVerdict OnMessage(NodeIndex from, std::uint32_t index,
                           std::span<const std::byte> payload) noexcept override;
  bool IsComplete() const noexcept override { return passed_ == round_count_; }

 private:
  Operation* operation_ = nullptr;
  std::uint32_t round_count_ = 0;
  std::uint32_t told_ = 0;    // rounds whose message was sent
  std::uint32_t passed_ = 0;  // rounds whose message was sent and received
  std::uint64_t heard_ = 0;   // by round: the message has come
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_COLLECTIVES_DISSEMINATION_BARRIER_H_
