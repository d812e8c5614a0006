// The ringds of a job that open a fast path over the loopback interface, and strangers that meddle.
#ifndef RINGD_TESTS_DAEMON_FAST_PATH_OPENING_NODES_H_
#define RINGD_TESTS_DAEMON_FAST_PATH_OPENING_NODES_H_

#include <sys/epoll.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "daemon/fast_path/fast_path_listener.h"
#include "daemon/fast_path/fast_path_setup.h"
#include "daemon/fast_path/fast_path_socket.h"

namespace ringd {

inline constexpr std::uint64_t kWireId = 77;
inline const std::string kToken = "sixteen letters!";

inline std::unique_ptr<FastPathListener> OpenListener() {
  auto opened = FastPathListener::Open("127.0.0.1", CongestionControl{});
  REQUIRE(opened.ok());
  return *std::move(opened);
}

inline FastPathHello HelloOf(std::uint32_t node) {
  FastPathHello hello{};
  hello.magic = kFastPathMessageMagic;
  hello.version = kFastPathWireVersion;
  hello.wire_id = kWireId;
  hello.node_index = node;
  std::memcpy(hello.token, kToken.data(), kFastPathTokenBytes);
  return hello;
}

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

// A connection of somebody who speaks for himself.
class Stranger {
 public:
  explicit Stranger(const FastPathListener& listener) {
    auto begun = BeginFastPathConnection(listener.address(), CongestionControl{});
    REQUIRE(begun.ok());
    fd_ = *std::move(begun);
    // Over the loopback interface it is connected as soon as the kernel has it.
    REQUIRE(Within([&] { return CheckSilent(fd_.get()).ok(); }));
  }
  void Say(std::span<const std::byte> bytes) { REQUIRE(SendWhole(fd_.get(), bytes).ok()); }
  bool HungUpOn() const { return absl::IsUnavailable(CheckSilent(fd_.get())); }
  bool Heard() const { return absl::IsInvalidArgument(CheckSilent(fd_.get())); }
  void HangUp() { fd_.Reset(); }

 private:
  UniqueFd fd_;
};

// All nodes of a job, each with its own listener.
class OpeningNodes {
 public:
  explicit OpeningNodes(std::uint32_t count, bool knomial = false) : knomial_(knomial) {
    for (std::uint32_t node = 0; node < count; ++node) {
      listeners_.push_back(OpenListener());
      names_.push_back("node-" + std::to_string(node));
    }
    setups_.resize(count);
  }

  FastPathPlan PlanOf(std::uint32_t node) const {
    std::vector<std::string> addresses;
    for (const auto& listener : listeners_) addresses.push_back(listener->address());
    return {kWireId, kToken, node, names_, addresses, knomial_};
  }
  void Begin(std::uint32_t node, Clock::time_point now = Clock::now()) { Begin(PlanOf(node), now); }
  void Begin(const FastPathPlan& plan, Clock::time_point now = Clock::now()) {
    setups_[plan.self] =
        std::make_unique<FastPathSetup>(plan, listeners_[plan.self].get(), LogFields{}, now);
  }
  void Advance(Clock::time_point now = Clock::now()) {
    for (const auto& listener : listeners_) listener->Advance(now);
    for (const auto& setup : setups_) {
      if (setup != nullptr) setup->Advance(now);
    }
  }
  // True once every node that has begun is so.
  bool All(FastPathSetup::State state) {
    return Within([&] {
      Advance();
      for (const auto& setup : setups_) {
        if (setup != nullptr && setup->Advance(Clock::now()) != state) return false;
      }
      return true;
    });
  }
  FastPathSetup& Setup(std::uint32_t node) { return *setups_[node]; }
  void End(std::uint32_t node) { setups_[node].reset(); }
  FastPathListener& Listener(std::uint32_t node) { return *listeners_[node]; }

 private:
  const bool knomial_;
  std::vector<std::unique_ptr<FastPathListener>> listeners_;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<FastPathSetup>> setups_;
};

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_FAST_PATH_OPENING_NODES_H_
