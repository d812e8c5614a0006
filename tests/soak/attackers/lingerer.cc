// A rank over two nodes that tries to make ringd's engine sleep in `close`: it gives the rank
// exchange's connection, which it shares with ringd, a linger time of ten minutes, fills it, and
// exits, so that ringd is the last to close it. Its accomplice, the rank on the other node, keeps
// the connection open and takes care that nobody receives.
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <vector>

#include "proto/rank_exchange/rank_exchange_segment.h"
#include "tests/soak/attackers/attacker.h"
#include "tests/soak/attackers/member.h"

namespace ringd::soak {
namespace {

class Lingerer : public Attacker {
 public:
  void Attack(const Target& target) override {
    if (JoinFromEnvironment() == nullptr) return;
    const std::vector<SharedMemory> segments = SharedMemories("ringd-rank-exchange");
    const std::vector<int> sockets = TcpSockets();
    if (segments.empty() || sockets.empty()) {
      Did("found no connection of the rank exchange");
      return;
    }
    const auto view = ViewRankExchangeSegment(segments.front().base, segments.front().bytes);
    if (!view.ok()) return;
    const char* const rank = std::getenv("RANK");
    // Nobody receives while somebody else is said to do so.
    std::thread([view = *view] {
      for (;;) {
        view.control().driver.store(1);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }).detach();
    if (rank != nullptr && rank[0] != '0') {
      Did("keeps %zu connections open without receiving", sockets.size());
      return;
    }
    target.Rest(std::chrono::milliseconds(300));
    std::size_t filled = 0;
    for (const int socket : sockets) {
      const linger ten_minutes{1, 600};
      ::setsockopt(socket, SOL_SOCKET, SO_LINGER, &ten_minutes, sizeof(ten_minutes));
      filled += Fill(socket, target);
    }
    Did("filled %zu connections with %zu bytes, and exits", sockets.size(), filled);
    std::_Exit(0);
  }

 private:
  static std::size_t Fill(int socket, const Target& target) {
    const std::vector<char> bytes(65536);
    std::size_t filled = 0;
    // Until nothing goes for a while: the other side's buffer is full, too.
    for (int idle = 0; idle < 10 && !target.Over();) {
      const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent > 0) {
        filled += static_cast<std::size_t>(sent);
        idle = 0;
      } else {
        if (errno != EAGAIN) break;
        ++idle;
        target.Rest(std::chrono::milliseconds(10));
      }
    }
    return filled;
  }
};

}  // namespace

std::unique_ptr<Attacker> MakeLingerer() { return std::make_unique<Lingerer>(); }

}  // namespace ringd::soak
