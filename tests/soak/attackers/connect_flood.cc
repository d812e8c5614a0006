// A user who connects and hangs up as fast as he can.
#include <sys/socket.h>
#include <unistd.h>

#include "tests/soak/attackers/attacker.h"
#include "tests/soak/attackers/local_socket.h"

namespace ringd::soak {
namespace {

class ConnectFlood : public Attacker {
 public:
  void Attack(const Target& target) override {
    int made = 0;
    while (!target.Over()) {
      const int connection = ConnectToRingd(target.socket);
      if (connection < 0) {
        target.Rest(std::chrono::milliseconds(1));
        continue;
      }
      if (made % 2 == 0) (void)::send(connection, "PRI ", 4, MSG_NOSIGNAL | MSG_DONTWAIT);
      ::close(connection);
      ++made;
    }
    Did("%d connections", made);
  }
};

}  // namespace

std::unique_ptr<Attacker> MakeConnectFlood() { return std::make_unique<ConnectFlood>(); }

}  // namespace ringd::soak
