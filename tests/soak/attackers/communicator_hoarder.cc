// A user who makes communicators without end, floods those over two nodes with operations that he
// never waits for, and destroys none: as a rank of a job over two nodes, and in jobs of his own
// until ringd makes no more. Then he has the last one destroyed and made again and again. What is
// left ends with his processes.
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "tests/soak/attackers/attacker.h"
#include "tests/soak/attackers/member.h"
#include "tests/soak/attackers/raw_session.h"

namespace ringd::soak {
namespace {

constexpr int kPairs = 40;
constexpr std::int64_t kElements = 256 * 1024;
// Of his jobs, more than what he may have takes.
constexpr int kJobs = 4;
// In a job of one rank.
constexpr int kOfOneJob = 1024;

class CommunicatorHoarder : public Attacker {
 public:
  void Attack(const Target& target) override {
    const int flooded = FloodPairs(target);
    std::vector<std::unique_ptr<RawSession>> sessions;
    int made = 0;
    std::string refusal;
    RawSession* holder = nullptr;  // of the last one
    std::uint32_t last = 0;
    for (int job = 0; job < kJobs && refusal.empty() && !target.Over(); ++job) {
      auto session = std::make_unique<RawSession>(target.socket);
      const std::string name = "hoard" + std::to_string(target.seed) + "-" + std::to_string(job);
      if (!session->attached() || session->JoinAlone(name) == 0) break;
      for (int i = 0; i < kOfOneJob && refusal.empty() && !target.Over(); ++i) {
        std::uint32_t communicator = 0;
        refusal = Create(*session, "hoarded " + std::to_string(i), communicator);
        if (!refusal.empty()) break;
        ++made;
        holder = session.get();
        last = communicator;
      }
      sessions.push_back(std::move(session));
    }
    Did("%d communicators of two nodes flooded, %d more made, then: %s", flooded, made,
        refusal.empty() ? "not refused" : refusal.c_str());
    int renewed = 0;
    while (holder != nullptr && Renew(*holder, last, target)) ++renewed;
    Did("%d destroyed and made again", renewed);
  }

 private:
  // As the other rank does, in the same order. How many could be made.
  static int FloodPairs(const Target& target) {
    ringd_context* const context = JoinFromEnvironment();
    if (context == nullptr) return 0;
    void* memory = nullptr;
    if (ringd_arena_alloc(context, kElements * sizeof(float), &memory) != RINGD_OK) return 0;
    for (int pair = 0; pair < kPairs; ++pair) {
      if (target.Over() || !FloodPair(context, pair, memory)) return pair;
    }
    return kPairs;
  }
  static bool FloodPair(ringd_context* context, int pair, void* memory) {
    const std::array<std::int32_t, 2> ranks{pair % 2, 1 - pair % 2};
    const std::string name = "flooded " + std::to_string(pair);
    ringd_communicator_options options{};
    options.struct_size = sizeof(options);
    options.name = name.c_str();
    options.ranks = ranks.data();
    options.count = ranks.size();
    ringd_communicator communicator = 0;
    if (ringd_communicator_create(context, &options, &communicator) != RINGD_OK) return false;
    ringd_tensor tensor{};
    tensor.struct_size = sizeof(tensor);
    tensor.name = "flood";
    tensor.data_type = RINGD_FLOAT32;
    tensor.dimensions = 1;
    tensor.shape = &kElements;
    tensor.communicator = communicator;
    ringd_registration registration = 0;
    if (ringd_register(context, &tensor, 1, &registration) != RINGD_OK) return false;
    ringd_operation operation = 0;
    return ringd_submit(context, registration, memory, memory, &operation) == RINGD_OK;
  }

  // Empty, or why not.
  static std::string Create(RawSession& session, const std::string& name,
                            std::uint32_t& communicator) {
    v1::CreateCommunicatorRequest request;
    request.set_name(name);
    request.add_ranks(0);
    v1::CreateCommunicatorReply reply;
    const grpc::Status status =
        session.stub().CreateCommunicator(session.Call(5).get(), request, &reply);
    communicator = reply.communicator();
    // Who lets notices pile up is thrown out.
    std::array<std::byte, 4096> notices;
    while (::recv(session.lifeline.get(), notices.data(), notices.size(), MSG_DONTWAIT) > 0) {
    }
    return status.ok() ? "" : status.error_message();
  }
  // False: it is over, or ringd has thrown him out.
  static bool Renew(RawSession& session, std::uint32_t& communicator, const Target& target) {
    v1::DestroyCommunicatorRequest request;
    request.set_communicator(communicator);
    v1::DestroyCommunicatorReply reply;
    if (!session.stub().DestroyCommunicator(session.Call(5).get(), request, &reply).ok()) {
      return false;
    }
    // There is room for another one when it has ended.
    while (!target.Over()) {
      if (Create(session, "renewed", communicator).empty()) return true;
      target.Rest(std::chrono::milliseconds(1));
    }
    return false;
  }
};

}  // namespace

std::unique_ptr<Attacker> MakeCommunicatorHoarder() {
  return std::make_unique<CommunicatorHoarder>();
}

}  // namespace ringd::soak
