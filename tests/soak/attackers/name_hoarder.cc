// One user's one-node job of many ranks that know very many names, and submit none of them: whoever
// looks through names times ranks now and then has no time for anything else.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/soak/attackers/attacker.h"
#include "tests/soak/attackers/member.h"

namespace ringd::soak {
namespace {

constexpr int kRanks = 48;
constexpr int kNames = 20'000;
constexpr int kNamesPerCall = 2'000;

class NameHoarder : public Attacker {
 public:
  void Attack(const Target& target) override {
    std::atomic<int> joined{0};
    std::atomic<int> names{0};
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([&, rank] {
        ringd_context* const context = JoinLocally(target.socket, "names", rank, kRanks);
        if (context == nullptr) return;
        ++joined;
        // The segment knows a name as soon as one rank has described it.
        for (int first = rank * kNamesPerCall; first < kNames && !target.Over();
             first += kNamesPerCall * kRanks) {
          if (Describe(context, first)) names += kNamesPerCall;
        }
      });
    }
    for (std::thread& rank : ranks) rank.join();
    Did("%d of %d ranks joined, and described %d names", joined.load(), kRanks, names.load());
  }

 private:
  static bool Describe(ringd_context* context, int first) {
    const std::int64_t elements = 1024;
    std::vector<std::string> names;
    for (int i = 0; i < kNamesPerCall; ++i) names.push_back("hoard" + std::to_string(first + i));
    std::vector<ringd_tensor> tensors;
    for (const std::string& name : names) {
      ringd_tensor tensor{};
      tensor.struct_size = sizeof(tensor);
      tensor.name = name.c_str();
      tensor.data_type = RINGD_FLOAT32;
      tensor.dimensions = 1;
      tensor.shape = &elements;
      tensors.push_back(tensor);
    }
    std::vector<ringd_registration> registrations(tensors.size());
    return ringd_register(context, tensors.data(), tensors.size(), registrations.data()) ==
           RINGD_OK;
  }
};

}  // namespace

std::unique_ptr<Attacker> MakeNameHoarder() { return std::make_unique<NameHoarder>(); }

}  // namespace ringd::soak
