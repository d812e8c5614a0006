// A rank that writes rubbish into all memory that it shares with ringd and with the other ranks of
// its job.
#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "tests/soak/attackers/attacker.h"
#include "tests/soak/attackers/member.h"

namespace ringd::soak {
namespace {

// Where cursors, locks and states are; the rest is mostly numbers to be added.
constexpr std::size_t kFirstWords = 512;

class RubbishWriter : public Attacker {
 public:
  void Attack(const Target& target) override {
    ringd_context* const context = JoinFromEnvironment();
    if (context == nullptr) return;
    std::vector<SharedMemory> memories = SharedMemories("ringd-");
    Did("writes into %zu segments", memories.size());
    std::mt19937_64 random(target.seed);
    std::uint64_t written = 0;
    for (int round = 0; !target.Over(); ++round) {
      for (const SharedMemory& memory : memories) {
        auto* const words = reinterpret_cast<volatile std::uint64_t*>(memory.base);
        const std::size_t count = memory.bytes / sizeof(std::uint64_t);
        // Not all over an arena, which would only use memory up.
        const std::size_t reach = std::min<std::size_t>(count, 1 << 16);
        for (int i = 0; i < 500; ++i, ++written) {
          const std::size_t range = random() % 2 == 0 ? std::min(reach, kFirstWords) : reach;
          words[random() % range] = random() >> (random() % 64);
        }
      }
      Wake(context, round);
      target.Rest(std::chrono::milliseconds(5));
    }
    Did("%llu words", static_cast<unsigned long long>(written));
  }

 private:
  // ringd looks at what a session submits when it is awake; a call wakes it. The session may have
  // ended long ago.
  static void Wake(ringd_context* context, int round) {
    const std::string name = "rubbish" + std::to_string(round % 1000);
    ringd_tensor tensor{};
    tensor.struct_size = sizeof(tensor);
    tensor.name = name.c_str();
    tensor.kind = RINGD_BARRIER;
    ringd_registration registration = 0;
    (void)ringd_register(context, &tensor, 1, &registration);
  }
};

}  // namespace

std::unique_ptr<Attacker> MakeRubbishWriter() { return std::make_unique<RubbishWriter>(); }

}  // namespace ringd::soak
