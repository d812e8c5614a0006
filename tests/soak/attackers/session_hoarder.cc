// A user who takes all sessions that he can get, and keeps them.
#include <memory>
#include <vector>

#include "tests/soak/attackers/attacker.h"
#include "tests/soak/attackers/raw_session.h"

namespace ringd::soak {
namespace {

constexpr std::size_t kWanted = 255;

class SessionHoarder : public Attacker {
 public:
  void Attack(const Target& target) override {
    std::vector<std::unique_ptr<RawSession>> held;
    bool refused = false;
    while (!target.Over()) {
      if (held.size() < kWanted) {
        auto session = std::make_unique<RawSession>(target.socket);
        if (session->attached()) {
          held.push_back(std::move(session));
          continue;
        }
      }
      if (!refused) Did("was refused, or had enough, at %zu sessions", held.size());
      refused = true;
      target.Rest(std::chrono::milliseconds(20));
    }
    Did("holds %zu sessions", held.size());
  }
};

}  // namespace

std::unique_ptr<Attacker> MakeSessionHoarder() { return std::make_unique<SessionHoarder>(); }

}  // namespace ringd::soak
