// The ringds of a job that open a rank exchange over the loopback interface, and one of its nodes
// that meddles.
#ifndef RINGD_TESTS_DAEMON_LANES_RANK_EXCHANGE_OPENING_NODES_H_
#define RINGD_TESTS_DAEMON_LANES_RANK_EXCHANGE_OPENING_NODES_H_

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "daemon/lanes/rank_exchange/rank_exchange_setup.h"
#include "daemon/lanes/rank_exchange/rank_exchange_socket.h"
#include "daemon/lanes/rank_exchange/rank_exchange_sockets.h"
#include "tests/daemon/engine_process/joined_engine.h"

namespace ringd {

inline constexpr std::uint64_t kWireId = 77;
inline const std::string kKey(kSha256Bytes, 'k');

// A ringd's door, and the rank exchange's side of it.
struct OpenedDoor {
  explicit OpenedDoor(const std::string& name) : node(name), engine(node.network.get()) {
    auto made = RankExchangeSockets::Create(node.MakeWires(engine, DoorPurpose::kExchange));
    REQUIRE(made.ok());
    sockets = *std::move(made);
  }

  JoinedNode node;
  JoinedEngine engine;
  std::unique_ptr<RankExchangeSockets> sockets;
};

template <typename Message>
std::span<const std::byte> BytesOf(const Message& message) {
  return std::as_bytes(std::span(&message, 1));
}

// Calls `turn` until it returns true; false if that takes longer than any test should.
template <typename Turn>
bool Within(Turn turn, std::chrono::milliseconds limit = std::chrono::seconds(20)) {
  const Clock::time_point deadline = Clock::now() + limit;
  while (!turn()) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

// A node of the job that has the key and speaks for itself: one connection of it to another node.
class Member {
 public:
  // As node `from`, to node `to` of `plan`.
  Member(const RankExchangePlan& plan, std::uint32_t from, std::uint32_t to)
      : door_("node-" + std::to_string(from)) {
    door_.sockets->Open({plan.wire_id, NodeIndex(static_cast<std::int32_t>(from)), plan.key,
                         plan.addresses, plan.node_names});
    door_.sockets->Dial(plan.wire_id, NodeIndex(static_cast<std::int32_t>(to)));
  }
  // Until it is let in.
  void Await() {
    std::vector<WireSockets::Event> events;
    REQUIRE(Within([&] {
      door_.sockets->Advance();
      events = door_.sockets->TakeEvents(kWireId);
      return !events.empty();
    }));
    INFO(events[0].status);
    REQUIRE(events[0].status.ok());
    fd_ = std::move(events[0].socket);
  }
  void Say(std::span<const std::byte> bytes) { REQUIRE(SendWhole(fd_.get(), bytes).ok()); }
  bool HungUpOn() const { return absl::IsUnavailable(CheckSilent(fd_.get())); }
  bool Heard() const { return absl::IsInvalidArgument(CheckSilent(fd_.get())); }
  void HangUp() { fd_.Reset(); }

 private:
  OpenedDoor door_;
  UniqueFd fd_;
};

// All nodes of a job, each with its own door.
class OpeningNodes {
 public:
  explicit OpeningNodes(std::uint32_t count, bool knomial = false) : knomial_(knomial) {
    for (std::uint32_t node = 0; node < count; ++node) {
      names_.push_back("node-" + std::to_string(node));
      doors_.push_back(std::make_unique<OpenedDoor>(names_.back()));
    }
    setups_.resize(count);
  }
  ~OpeningNodes() { setups_.clear(); }

  RankExchangePlan PlanOf(std::uint32_t node) const {
    std::vector<std::string> addresses;
    for (const auto& door : doors_) addresses.push_back(door->sockets->address());
    return {kWireId, kKey, node, names_, addresses, knomial_};
  }
  void Begin(std::uint32_t node, Clock::time_point now = Clock::now()) { Begin(PlanOf(node), now); }
  void Begin(const RankExchangePlan& plan, Clock::time_point now = Clock::now()) {
    setups_[plan.self] = std::make_unique<RankExchangeSetup>(plan, doors_[plan.self]->sockets.get(),
                                                             LogFields{}, now);
  }
  void Advance(Clock::time_point now = Clock::now()) {
    for (const auto& door : doors_) door->sockets->Advance();
    for (const auto& setup : setups_) {
      if (setup != nullptr) setup->Advance(now);
    }
  }
  // As long as it takes until nothing more would happen by itself.
  void Settle(Clock::time_point now) {
    for (int turn = 0; turn < 200; ++turn) {
      Advance(now);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  // True once this node is so.
  bool Is(std::uint32_t node, RankExchangeSetup::State state,
          Clock::time_point now = Clock::now()) {
    return Within([&] {
      Advance(now);
      return setups_[node]->Advance(now) == state;
    });
  }
  // True once every node that has begun is so.
  bool All(RankExchangeSetup::State state) {
    return Within([&] {
      const Clock::time_point now = Clock::now();
      Advance(now);
      for (const auto& setup : setups_) {
        if (setup != nullptr && setup->Advance(now) != state) return false;
      }
      return true;
    });
  }
  RankExchangeSetup& Setup(std::uint32_t node) { return *setups_[node]; }
  RankExchangeSockets& Sockets(std::uint32_t node) { return *doors_[node]->sockets; }

 private:
  const bool knomial_;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<OpenedDoor>> doors_;
  std::vector<std::unique_ptr<RankExchangeSetup>> setups_;
};

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_LANES_RANK_EXCHANGE_OPENING_NODES_H_
