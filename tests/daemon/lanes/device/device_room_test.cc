#include "daemon/lanes/device/device_room.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>
#include <utility>

#include "proto/base/clock.h"

namespace ringd {
namespace {

using Catch::Contains;

const std::string kMissing = "/no/such/libcuda.so.1";

// A room whose driver is not there, and what it has answered.
struct EmptyRoom {
  explicit EmptyRoom(const std::string& cuda)
      : room({.cuda_library = cuda, .nccl_library = "/no/such/libnccl.so.2", .fusion_bytes = 1024},
             [this] { ++wakes; }) {}

  void Ask(const std::string& uuid) {
    room.OpenSlab(uuid, 4096, {},
                  [this](const absl::Status& status, std::shared_ptr<const SessionSlab> slab,
                         const UniqueFd&) {
                    CHECK(slab == nullptr);
                    answers.push_back(status);
                  });
  }
  // Until there are so many answers.
  void Await(std::size_t count) {
    const Clock::time_point deadline = Clock::now() + std::chrono::seconds(10);
    while (answers.size() < count && Clock::now() < deadline) {
      room.Advance();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    REQUIRE(answers.size() == count);
  }

  std::atomic<int> wakes{0};
  std::vector<absl::Status> answers;
  DeviceRoom room;
};

}  // namespace

TEST_CASE("DeviceRoom: a library that is not there is named to whoever asks, each time") {
  EmptyRoom room(kMissing);
  room.Ask("GPU-a");
  room.Ask("GPU-a");
  CHECK(room.answers.empty());
  room.Await(2);
  CHECK(room.wakes > 0);
  for (const absl::Status& status : room.answers) {
    CHECK(status.code() == absl::StatusCode::kNotFound);
    CHECK_THAT(std::string(status.message()), Contains(kMissing));
  }
}

TEST_CASE("DeviceRoom: where no library is set there is no GPU, and no thread") {
  EmptyRoom room("");
  room.Ask("GPU-a");
  REQUIRE(room.answers.size() == 1);
  CHECK_THAT(std::string(room.answers[0].message()), Contains("cuda_library is not set"));
}

TEST_CASE("DeviceRoom: a trainer whose library is too old to launch is refused where it has to") {
  DeviceRoom room({.cuda_library = kMissing,
                   .nccl_library = "/no/such/libnccl.so.2",
                   .launch = LaunchChoice::kTrainer},
                  [] {});
  absl::Status answer;
  DeviceAsker asker;
  asker.name = "rank 3 (pid 7)";
  room.OpenSlab(
      "GPU-a", 4096, std::move(asker),
      [&answer](const absl::Status& status, const auto&, const UniqueFd&) { answer = status; });
  CHECK(absl::IsFailedPrecondition(answer));
  CHECK_THAT(std::string(answer.message()), Contains("rank 3 (pid 7)") && Contains("too old"));
}

namespace {

// What a trainer that can take the host path is told.
struct HostPathAsker {
  DeviceAsker Make(bool wants = false) {
    DeviceAsker asker;
    asker.name = "rank 3 (pid 7)";
    asker.wants_host_path = wants;
    asker.go_by_host = [this](const std::string& why) { reasons.push_back(why); };
    return asker;
  }
  void Ask(DeviceRoom& room, DeviceAsker asker) {
    room.OpenSlab("GPU-a", 4096, std::move(asker),
                  [this](const absl::Status& status, const auto&, const UniqueFd&) {
                    refusals.push_back(status);
                  });
  }

  std::vector<std::string> reasons;
  std::vector<absl::Status> refusals;
};

}  // namespace

TEST_CASE("DeviceRoom: who asks for the host path gets it, by the setting or by itself") {
  HostPathAsker trainer;
  DeviceRoom by_setting({.cuda_library = "", .nccl_library = "", .launch = LaunchChoice::kHost},
                        [] {});
  trainer.Ask(by_setting, trainer.Make());
  DeviceRoom other({.cuda_library = kMissing,
                    .nccl_library = "/no/such/libnccl.so.2",
                    .launch = LaunchChoice::kEngine},
                   [] {});
  trainer.Ask(other, trainer.Make(/*wants=*/true));
  CHECK(trainer.reasons == std::vector<std::string>{"", ""});
  CHECK(trainer.refusals.empty());
  DeviceAsker old = trainer.Make();
  old.go_by_host = nullptr;
  trainer.Ask(by_setting, std::move(old));
  REQUIRE(trainer.refusals.size() == 1);
  CHECK_THAT(std::string(trainer.refusals[0].message()),
             Contains("rank 3 (pid 7)") && Contains("too old"));
}

TEST_CASE("DeviceRoom: without NCCL a trainer takes the host path, if nothing forbids it") {
  HostPathAsker trainer;
  DeviceRoom without({.cuda_library = kMissing, .nccl_library = ""}, [] {});
  trainer.Ask(without, trainer.Make());
  REQUIRE(trainer.reasons.size() == 1);
  CHECK_THAT(trainer.reasons[0], Contains("nccl_library is not set"));
  DeviceRoom engine({.cuda_library = kMissing, .nccl_library = "", .launch = LaunchChoice::kEngine},
                    [] {});
  trainer.Ask(engine, trainer.Make());
  REQUIRE(trainer.refusals.size() == 1);
  CHECK_THAT(std::string(trainer.refusals[0].message()), Contains("nccl_library is not set"));
  // A slab that is too large is no reason.
  DeviceRoom small({.cuda_library = kMissing, .nccl_library = "x", .max_slab = 1024}, [] {});
  trainer.Ask(small, trainer.Make());
  CHECK(trainer.refusals.size() == 2);
  CHECK(trainer.reasons.size() == 1);
}

TEST_CASE("DeviceRoom: whoever is not under MPS gets a channel, and its end is an answer") {
  DeviceRoom room({.cuda_library = kMissing, .nccl_library = "/no/such/libnccl.so.2"}, [] {});
  bool handed = false;
  absl::Status answer;
  DeviceAsker asker;
  asker.name = "rank 3 (pid 7)";
  asker.can_launch = true;
  // Nobody takes it, so that the other end closes.
  asker.hand_over = [&handed](const UniqueFd& socket) { handed = socket.valid(); };
  room.OpenSlab(
      "GPU-a", 4096, std::move(asker),
      [&answer](const absl::Status& status, const auto&, const UniqueFd&) { answer = status; });
  CHECK(handed);
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(10);
  while (answer.ok() && Clock::now() < deadline) {
    room.Advance();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK_THAT(std::string(answer.message()), Contains("rank 3 (pid 7)") && Contains("has gone"));
}

TEST_CASE("DeviceRoom: what trainers ask for makes a bounded number of threads") {
  EmptyRoom room(kMissing);
  room.Ask(std::string(65, 'x'));
  CHECK(room.answers.size() == 1);
  for (int i = 0; i < 64; ++i) room.Ask("GPU-" + std::to_string(i));
  room.Ask("GPU-64");
  room.Await(66);
  for (const absl::Status& status : room.answers) CHECK(absl::IsNotFound(status));
}

TEST_CASE("DeviceRoom: the thread of a GPU that is not there ends when that is told") {
  EmptyRoom room(kMissing);
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  };
  const auto before = threads();  // those of the case before may still be about to end
  for (std::size_t round = 1; round <= 3; ++round) {
    for (int i = 0; i < 64; ++i) room.Ask("GPU-" + std::to_string(64 * round + i));
    room.Await(64 * round);
    for (int i = 0; i < 20'000 && threads() > before; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    CHECK(threads() <= before);
  }
  for (const absl::Status& status : room.answers) {
    CHECK_THAT(std::string(status.message()), Contains(kMissing));
  }
}

}  // namespace ringd
