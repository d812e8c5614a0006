// A rank that ends, while a process that it has left behind keeps everything that it had open: its
// connection to ringd, those of the rank exchange, the eventfds, the shared memory, which it writes
// rubbish into when everybody has heard. Who takes only a hang-up for the end of a process waits
// for ever.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "tests/soak/attackers/attacker.h"
#include "tests/soak/attackers/member.h"

namespace ringd::soak {
namespace {

// Where cursors, locks and states are.
constexpr std::size_t kWords = 512;
// So long the others have to hear of the rank's end, and of nothing else.
constexpr std::chrono::milliseconds kQuiet{1500};

class DescriptorKeeper : public Attacker {
 public:
  void Attack(const Target& target) override {
    ringd_context* const context = JoinFromEnvironment();
    if (context == nullptr) return;
    const std::vector<SharedMemory> memories = SharedMemories("ringd-");
    target.Rest(std::chrono::milliseconds(500));
    const int kept_descriptors = Duplicate();
    const pid_t kept = ::fork();
    if (kept == 0) {
      Spoil(memories, target);
      std::_Exit(0);
    }
    Did("%zu segments and %d descriptors stay with pid %d", memories.size(), kept_descriptors,
        static_cast<int>(kept));
    std::_Exit(0);
  }

 private:
  // The library closes its connection in a forked child, but knows of no other descriptor for it.
  static int Duplicate() {
    int count = 0;
    for (int descriptor = 3; descriptor < 1000; ++descriptor) {
      if (::fcntl(descriptor, F_DUPFD, 1000) >= 0) ++count;
    }
    return count;
  }

  // In a child of a process with threads: nothing that takes a lock.
  static void Spoil(const std::vector<SharedMemory>& memories, const Target& target) {
    target.Rest(kQuiet);
    std::uint64_t random = target.seed | 1;
    while (!target.Over()) {
      for (const SharedMemory& memory : memories) {
        auto* const words = reinterpret_cast<volatile std::uint64_t*>(memory.base);
        const std::size_t count = std::min(memory.bytes / sizeof(std::uint64_t), kWords);
        for (int i = 0; i < 100; ++i) {
          random = random * 6364136223846793005 + 1442695040888963407;
          words[(random >> 40) % count] = random;
        }
      }
      ::usleep(5000);
    }
  }
};

}  // namespace

std::unique_ptr<Attacker> MakeDescriptorKeeper() { return std::make_unique<DescriptorKeeper>(); }

}  // namespace ringd::soak
