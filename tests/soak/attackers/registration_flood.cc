// A rank that describes one tensor 65,535 times in a call, and calls again at once: a check of each against each, or
// replies made by the thread that serves everybody, would hold all others up.
#include <string>
#include <thread>
#include <vector>

#include "tests/soak/attackers/attacker.h"
#include "tests/soak/attackers/member.h"

namespace ringd::soak {
namespace {

constexpr std::size_t kDescriptions = 65'535;

class RegistrationFlood : public Attacker {
 public:
  void Attack(const Target& target) override {
    ringd_context* const context =
        JoinLocally(target.socket, "flood" + std::to_string(target.seed), -1, 1);
    if (context == nullptr) {
      Did("refused: %s", ringd_last_error());
      return;
    }
    std::vector<ringd_registration> registrations(kDescriptions);
    const std::vector<std::int64_t> shape(32, 1);
    int calls = 0;
    int refused = 0;
    while (!target.Over()) {
      // New to the library, which would know an old one without asking.
      const std::string name = "flood" + std::to_string(calls);
      ringd_tensor tensor{};
      tensor.struct_size = sizeof(tensor);
      tensor.name = name.c_str();
      tensor.data_type = RINGD_FLOAT32;
      tensor.dimensions = static_cast<std::int32_t>(shape.size());
      tensor.shape = shape.data();
      const std::vector<ringd_tensor> tensors(kDescriptions, tensor);
      const ringd_status status =
          ringd_register(context, tensors.data(), tensors.size(), registrations.data());
      if (status != RINGD_OK && refused++ == 0) Did("refused: %s", ringd_last_error());
      ++calls;
      target.Rest(std::chrono::milliseconds(50));
    }
    Did("%d calls of %zu descriptions, %d refused", calls, kDescriptions, refused);
  }
};

}  // namespace

std::unique_ptr<Attacker> MakeRegistrationFlood() { return std::make_unique<RegistrationFlood>(); }

}  // namespace ringd::soak
