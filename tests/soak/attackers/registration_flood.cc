// A rank that describes one tensor 65,535 times in one message, and again as soon as it is
// answered: a check of each against each, or replies made by the thread that serves everybody,
// would hold all others up.
#include <string>

#include "tests/soak/attackers/attacker.h"
#include "tests/soak/attackers/raw_session.h"

namespace ringd::soak {
namespace {

constexpr int kDescriptions = 65'535;

class RegistrationFlood : public Attacker {
 public:
  void Attack(const Target& target) override {
    RawSession session(target.socket);
    const std::uint32_t communicator =
        session.attached() ? session.JoinAlone("flood" + std::to_string(target.seed)) : 0;
    if (communicator == 0) {
      Did("refused");
      return;
    }
    v1::RegisterTensorsRequest request;
    for (int i = 0; i < kDescriptions; ++i) {
      v1::TensorDescription& tensor = *request.add_tensors();
      tensor.set_communicator(communicator);
      tensor.set_name("flood");
      tensor.set_data_type(10);
      tensor.add_shape(16);
      tensor.set_prescale(1);
      tensor.set_postscale(1);
    }
    int calls = 0;
    int refused = 0;
    while (!target.Over()) {
      v1::RegisterTensorsReply reply;
      const grpc::Status status =
          session.stub().RegisterTensors(session.Call(5).get(), request, &reply);
      if (!status.ok() && refused++ == 0) Did("refused: %s", status.error_message().c_str());
      ++calls;
      // Five a second.
      target.Rest(std::chrono::milliseconds(150));
    }
    Did("%d calls of %d descriptions, %d refused", calls, kDescriptions, refused);
  }
};

}  // namespace

std::unique_ptr<Attacker> MakeRegistrationFlood() { return std::make_unique<RegistrationFlood>(); }

}  // namespace ringd::soak
