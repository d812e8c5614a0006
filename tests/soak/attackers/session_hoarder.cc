// A user who takes all sessions that he can get, and keeps them.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

#include "proto/attach/handshake.h"
#include "tests/soak/attackers/attacker.h"
#include "tests/soak/attackers/local_socket.h"

namespace ringd::soak {
namespace {

constexpr int kWanted = 255;

// A connection that ringd has accepted as a session; -1: it was refused. The descriptors that come with it are dropped,
// which ringd doesn't see.
int Attach(const std::string& path) {
  const int connection = ConnectToRingd(path);
  if (connection < 0) return -1;
  pollfd answer{connection, POLLIN, 0};
  AttachRequest request{};
  request.magic = kAttachMagic;
  request.version = kAttachVersion;
  AttachReply reply{};
  const bool accepted =
      ::send(connection, &request, sizeof(request), MSG_NOSIGNAL) == sizeof(request) &&
      ::poll(&answer, 1, 5000) > 0 &&
      ::recv(connection, &reply, sizeof(reply), 0) == sizeof(reply) && reply.status == 0;
  if (accepted) return connection;
  ::close(connection);
  return -1;
}

class SessionHoarder : public Attacker {
 public:
  void Attack(const Target& target) override {
    std::vector<int> held;
    bool told = false;
    while (!target.Over()) {
      const int session = static_cast<int>(held.size()) < kWanted ? Attach(target.socket) : -1;
      if (session >= 0) {
        held.push_back(session);
        continue;
      }
      if (!told) Did("holds %zu sessions", held.size());
      told = true;
      target.Rest(std::chrono::milliseconds(20));
    }
    if (!told) Did("holds %zu sessions", held.size());
  }
};

}  // namespace

std::unique_ptr<Attacker> MakeSessionHoarder() { return std::make_unique<SessionHoarder>(); }

}  // namespace ringd::soak
