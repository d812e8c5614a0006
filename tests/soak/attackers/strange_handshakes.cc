// A user whose connections say something that is no handshake, or say it a byte at a time.
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <vector>

#include "proto/attach/handshake.h"
#include "tests/soak/attackers/attacker.h"
#include "tests/soak/attackers/local_socket.h"

namespace ringd::soak {
namespace {

constexpr std::size_t kSlowConnections = 100;

class StrangeHandshakes : public Attacker {
 public:
  void Attack(const Target& target) override {
    std::mt19937_64 random(target.seed);
    std::vector<int> slow;
    int said = 0;
    while (!target.Over()) {
      const int connection = ConnectToRingd(target.socket);
      if (connection < 0) {
        target.Rest(std::chrono::milliseconds(2));
      } else if (slow.size() < kSlowConnections) {
        slow.push_back(connection);
      } else {
        SaySomething(connection, random);
        ::close(connection);
      }
      ++said;
      if (slow.empty()) continue;
      // A byte more on one of the slow ones, which ringd may have closed.
      int& one = slow[random() % slow.size()];
      const char byte = "RNGD\1\0\0\0PRI * HTTP/2.0"[random() % 22];
      if (::send(one, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        ::close(one);
        one = slow.back();
        slow.pop_back();
      }
      target.Rest(std::chrono::milliseconds(1));
    }
    Did("%d connections", said);
  }

 private:
  static void SaySomething(int connection, std::mt19937_64& random) {
    std::vector<char> bytes(1 + random() % 4096);
    for (char& byte : bytes) byte = static_cast<char>(random());
    const char* const opening = random() % 3 == 0 ? "RNGD" : "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    // A third of them is nonsense from the first byte on.
    if (random() % 3 != 0) {
      std::memcpy(bytes.data(), opening, std::min(bytes.size(), std::strlen(opening)));
    }
    (void)::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
};

}  // namespace

std::unique_ptr<Attacker> MakeStrangeHandshakes() { return std::make_unique<StrangeHandshakes>(); }

}  // namespace ringd::soak
