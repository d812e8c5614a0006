// A user whose connections stop half way: nothing said, half a request, or a whole one whose answer
// is never read.
#include <sys/socket.h>
#include <unistd.h>

#include <deque>

#include "proto/attach/handshake.h"
#include "tests/soak/attackers/attacker.h"
#include "tests/soak/attackers/local_socket.h"

namespace ringd::soak {
namespace {

constexpr std::size_t kOpenAtOnce = 400;

class HalfAttacher : public Attacker {
 public:
  void Attack(const Target& target) override {
    AttachRequest request{};
    request.magic = kAttachMagic;
    request.version = kAttachVersion;
    std::deque<int> open;
    int made = 0;
    while (!target.Over()) {
      const int connection = ConnectToRingd(target.socket);
      if (connection < 0) {
        target.Rest(std::chrono::milliseconds(5));
        continue;
      }
      const std::size_t parts[] = {0, 2, 8, 31, sizeof(request)};
      (void)::send(connection, &request, parts[made % 5], MSG_NOSIGNAL | MSG_DONTWAIT);
      open.push_back(connection);
      if (open.size() > kOpenAtOnce) {
        ::close(open.front());
        open.pop_front();
      }
      ++made;
      target.Rest(std::chrono::milliseconds(1));
    }
    Did("%d connections, %zu at once", made, open.size());
  }
};

}  // namespace

std::unique_ptr<Attacker> MakeHalfAttacher() { return std::make_unique<HalfAttacher>(); }

}  // namespace ringd::soak
