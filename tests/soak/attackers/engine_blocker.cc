// A rank over two nodes that tries to make ringd's engine sleep in `write` or `read` on the fast path's eventfd: it takes
// O_NONBLOCK from the descriptor, which all who share it have in common, keeps the counter full, and forges operations
// that are overdue and a driver to be woken.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "proto/fast_path/fast_path_segment.h"
#include "tests/soak/attackers/attacker.h"
#include "tests/soak/attackers/member.h"

namespace ringd::soak {
namespace {

class EngineBlocker : public Attacker {
 public:
  void Attack(const Target& target) override {
    if (JoinFromEnvironment() == nullptr) return;
    const std::vector<SharedMemory> segments = SharedMemories("ringd-fast-path");
    if (segments.empty()) {
      Did("found no fast path");
      return;
    }
    const auto view = ViewFastPathSegment(segments.front().base, segments.front().bytes);
    const std::vector<int> wakes = EventDescriptors();
    if (!view.ok() || wakes.empty()) {
      Did("found no eventfd");
      return;
    }
    for (const int descriptor : wakes) {
      ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) & ~O_NONBLOCK);
      // Each sleeps in `write` until somebody has emptied the counter, and fills it again.
      std::thread([descriptor] {
        for (;;) {
          const std::uint64_t one = 1;
          const std::uint64_t most = UINT64_MAX - 1;
          if (::write(descriptor, &most, sizeof(most)) < 0 && ::write(descriptor, &one, 8) < 0) {
            return;
          }
        }
      }).detach();
    }
    Did("%zu eventfds block and are kept full", wakes.size());
    Forge(*view, target);
  }

 private:
  static void Forge(const FastPathView& view, const Target& target) {
    FastPathControl& control = view.control();
    std::uint64_t caught = 0;
    while (!target.Over()) {
      for (std::uint32_t i = 0; i < kFastPathCells; ++i) {
        FastPathCell& cell = view.Cell(i);
        cell.created_ns.store(1);
        cell.state.store(FastPathCellState::kGathers);
      }
      // ringd may take the driver's role; as soon as it has, it is somebody else's, who has to be woken.
      control.driver.store(kFastPathNobody);
      for (int i = 0; i < 2'000'000 && !target.Over(); ++i) {
        std::uint32_t ringd = kFastPathRingd;
        if (control.driver.compare_exchange_strong(ringd, 1)) {
          ++caught;
          break;
        }
      }
    }
    Did("%llu times there was a driver to be woken", static_cast<unsigned long long>(caught));
  }
};

}  // namespace

std::unique_ptr<Attacker> MakeEngineBlocker() { return std::make_unique<EngineBlocker>(); }

}  // namespace ringd::soak
