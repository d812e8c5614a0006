// A rank over two nodes that tries to make ringd's engine sleep in `write` or `read` on the rank
// exchange's eventfd: it takes O_NONBLOCK from the descriptor, which all who share it have in
// common, keeps the counter full, and forges operations that are overdue and a driver to be woken,
// in the moment in which ringd itself has that role.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "proto/rank_exchange/rank_exchange_segment.h"
#include "tests/soak/attackers/attacker.h"
#include "tests/soak/attackers/member.h"

namespace ringd::soak {
namespace {

class EngineBlocker : public Attacker {
 public:
  void Attack(const Target& target) override {
    if (JoinFromEnvironment() == nullptr) return;
    const std::vector<SharedMemory> segments = SharedMemories("ringd-rank-exchange");
    if (segments.empty()) {
      Did("found no rank exchange");
      return;
    }
    const auto view = ViewRankExchangeSegment(segments.front().base, segments.front().bytes);
    const int wakes = SharedEventDescriptor();
    if (!view.ok() || wakes < 0) {
      Did("found no eventfd that is shared");
      return;
    }
    ::fcntl(wakes, F_SETFL, ::fcntl(wakes, F_GETFL) & ~O_NONBLOCK);
    // Who takes a descriptor for closed empties its counter no more.
    view->control().closed.fetch_or(NodeBit(view->node_index()));
    std::thread([wakes] {
      for (;;) {
        // Sleeps until the counter is empty, and then fills it.
        const std::uint64_t most = UINT64_MAX - 1;
        if (::write(wakes, &most, sizeof(most)) < 0) return;
      }
    }).detach();
    Did("eventfd %d blocks and is kept full", wakes);
    Forge(*view, target);
  }

 private:
  // It is watched together with the connections to other nodes. -1: there is none.
  static int SharedEventDescriptor() {
    const std::vector<int> events = EventDescriptors();
    const std::vector<int> sockets = TcpSockets();
    const auto among = [](const std::vector<int>& all, int one) {
      return std::find(all.begin(), all.end(), one) != all.end();
    };
    for (const std::vector<int>& watched : WatchedTogether()) {
      bool connections = false;
      int event = -1;
      for (const int descriptor : watched) {
        connections |= among(sockets, descriptor);
        if (among(events, descriptor)) event = descriptor;
      }
      if (connections && event >= 0) return event;
    }
    return -1;
  }

  static void Forge(const RankExchangeView& view, const Target& target) {
    RankExchangeControl& control = view.control();
    std::uint64_t caught = 0;
    while (!target.Over()) {
      for (std::uint32_t i = 0; i < kRankExchangeCells; ++i) {
        RankExchangeCell& cell = view.Cell(i);
        cell.created_ns.store(1);
        cell.state.store(RankExchangeCellState::kGathers);
      }
      // Whatever has come to an end goes on, and nobody holds the lock.
      control.broken.store(0);
      control.lock.store(kRankExchangeNobody);
      // ringd may take the driver's role; as soon as it has, it is somebody else's, who has to be
      // woken.
      control.driver.store(kRankExchangeNobody);
      for (int i = 0; i < 2'000'000 && !target.Over(); ++i) {
        std::uint32_t ringd = kRankExchangeRingd;
        if (!control.driver.compare_exchange_strong(ringd, 1)) continue;
        ++caught;
        // Until ringd has done its turn, if it ever does.
        for (int wait = 0; wait < 100 && control.driver.load() == 1; ++wait) {
          target.Rest(std::chrono::milliseconds(1));
        }
        break;
      }
    }
    Did("%llu times there was a driver to be woken", static_cast<unsigned long long>(caught));
  }
};

}  // namespace

std::unique_ptr<Attacker> MakeEngineBlocker() { return std::make_unique<EngineBlocker>(); }

}  // namespace ringd::soak
