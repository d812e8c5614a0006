// A TrainerLauncher and the other end of its channel, for tests of what trainers may say.
#ifndef RINGD_TESTS_DAEMON_LANES_DEVICE_LAUNCHER_PAIR_H_
#define RINGD_TESTS_DAEMON_LANES_DEVICE_LAUNCHER_PAIR_H_

#include <poll.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "backends/device/launch_message.h"
#include "daemon/lanes/device/trainer_launcher.h"
#include "proto/base/unix_socket.h"

namespace ringd {

// The engine's launcher, and a trainer that says what a test lets it say.
class LauncherPair {
 public:
  static constexpr std::chrono::seconds kPatience{20};

  LauncherPair() {
    auto ends = UnixSocketPair();
    REQUIRE(ends.ok());
    trainer_.emplace(std::move(ends->second), ChannelLimits{}, nullptr);
    auto loop = ChannelLoop::Start("trainers");
    REQUIRE(loop.ok());
    loop_ = *std::move(loop);
    auto launcher = TrainerLauncher::Start({.trainer = "rank 1 (pid 7)",
                                            .gpu = "GPU-a",
                                            .nccl_library = "libnccl.so.2",
                                            .nccl_interfaces = "eth0",
                                            .slab_setting = "slab",
                                            .fusion_setting = "fusion"},
                                           std::move(ends->first), *loop_, [this] { ++wakes; });
    REQUIRE(launcher.ok());
    launcher_ = *std::move(launcher);
  }

  TrainerLauncher& launcher() { return *launcher_; }
  void HangUp() { trainer_->Close(); }

  void Tell(const DeviceEvent& event) { REQUIRE(Say(WriteEvent(event)->SerializeAsString())); }
  // False: the launcher has ended the channel.
  bool Say(const std::string& bytes) {
    if (!trainer_->Send(bytes)) return false;
    const Clock::time_point deadline = Clock::now() + kPatience;
    while (trainer_->WaitsToSend() && Clock::now() < deadline) {
      if (trainer_->Flush() != Channel::Flushed::kAll) std::this_thread::yield();
    }
    return !trainer_->WaitsToSend();
  }
  // The next command that the trainer hears.
  v1::LaunchCommand Hear() {
    const Clock::time_point deadline = Clock::now() + kPatience;
    while (heard_.empty() && Clock::now() < deadline) {
      pollfd look{trainer_->socket(), POLLIN, 0};
      ::poll(&look, 1, 10);
      if (look.revents == 0) continue;
      const absl::Status status = trainer_->Read(1 << 20, [this](const ChannelFrame& frame) {
        heard_.emplace_back();
        REQUIRE(heard_.back().ParseFromString(frame.bytes));
      });
      REQUIRE(status.ok());
    }
    REQUIRE(!heard_.empty());
    v1::LaunchCommand first = heard_.front();
    heard_.erase(heard_.begin());
    return first;
  }
  // The next event of the launcher's.
  DeviceEvent Await() {
    const Clock::time_point deadline = Clock::now() + kPatience;
    while (events_.empty() && Clock::now() < deadline) {
      for (DeviceEvent& event : launcher_->TakeEvents()) events_.push_back(std::move(event));
      if (events_.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    REQUIRE(!events_.empty());
    DeviceEvent first = std::move(events_.front());
    events_.erase(events_.begin());
    return first;
  }
  template <typename Event>
  Event Await() {
    DeviceEvent event = Await();
    REQUIRE(std::holds_alternative<Event>(event));
    return std::get<Event>(std::move(event));
  }

  void Open() {
    Tell(DeviceOpened{absl::OkStatus(), std::nullopt, "2.29.7"});
    Await<DeviceOpened>();
  }
  void Connect(DeviceCommunicatorId communicator) {
    launcher_->Connect(communicator, {}, 1, 2, 1024, std::nullopt, Clock::now() + kPatience);
    Tell(DeviceCommunicatorConnected{communicator, absl::OkStatus(), false});
    CHECK(Await<DeviceCommunicatorConnected>().communicator == communicator);
  }
  void Enqueue(DeviceCommunicatorId communicator, std::uint64_t id,
               Clock::duration patience = kPatience) {
    DeviceBucket bucket;
    bucket.id = id;
    bucket.communicator = communicator;
    bucket.deadline = Clock::now() + patience;
    launcher_->Enqueue(std::move(bucket));
  }

  std::atomic<int> wakes{0};

 private:
  std::unique_ptr<ChannelLoop> loop_;
  std::optional<Channel> trainer_;
  std::shared_ptr<TrainerLauncher> launcher_;
  std::vector<v1::LaunchCommand> heard_;
  std::vector<DeviceEvent> events_;
};

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_LANES_DEVICE_LAUNCHER_PAIR_H_
