#include "daemon/lanes/device/trainer_launcher.h"

#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "backends/cuda/timeline.h"
#include "backends/device/launch_message.h"
#include "tests/daemon/lanes/device/launcher_pair.h"

namespace ringd {
namespace {

using Catch::Contains;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kPatience = LauncherPair::kPatience;
const DeviceCommunicatorId kFirst(1);
const DeviceCommunicatorId kSecond(2);

}  // namespace

TEST_CASE("TrainerLauncher: a trainer hears what is asked for, in order, and its answers come") {
  LauncherPair pair;
  const v1::LaunchCommand open = pair.Hear();
  CHECK(open.open().gpu() == "GPU-a");
  CHECK(open.open().nccl_library() == "libnccl.so.2");
  CHECK(open.open().nccl_interfaces() == "eth0");
  pair.Open();
  pair.launcher().CreateSlab(DeviceSlabId(5), 4096);
  CHECK(pair.Hear().create_slab().bytes() == 4096);
  DeviceSlabCreated made;
  made.slab = DeviceSlabId(5);
  made.bytes = 4096 + kTimelineBytes;
  pair.Tell(std::move(made));
  CHECK(pair.Await<DeviceSlabCreated>().gpu == "GPU-a");
  pair.launcher().CreateId(3);
  CHECK(pair.Hear().create_id() == 3);
  pair.Tell(NcclIdCreated{3, absl::OkStatus(), {}});
  CHECK(pair.Await<NcclIdCreated>().request == 3);
  pair.Connect(kFirst);
  CHECK(pair.Hear().connect().size() == 2);
  REQUIRE(pair.launcher().Describe().size() == 1);
  CHECK(pair.launcher().Describe()[0].second.state == "ready");
  CHECK(pair.launcher().Describe()[0].second.version == "2.29.7");
  pair.Enqueue(kFirst, 1);
  CHECK(pair.Hear().enqueue().id() == 1);
  pair.Tell(DeviceBucketEnded{1, kFirst, absl::OkStatus(), {}});
  CHECK(pair.Await<DeviceBucketEnded>().status.ok());
  const std::uint32_t slots[] = {3, 5};
  pair.launcher().ReleaseSlots(DeviceSlabId(5), slots);
  CHECK(pair.Hear().release_slots().slots_size() == 2);
  pair.launcher().Disconnect(kFirst, Clock::now() + seconds(1));
  CHECK(pair.Hear().disconnect().communicator() == 1);
  CHECK(pair.launcher().Describe().empty());
  CHECK(pair.wakes > 0);
}

TEST_CASE("TrainerLauncher: what is registered is told once, for who was asked to register") {
  LauncherPair pair;
  pair.Hear();
  pair.Tell(DeviceOpened{absl::OkStatus(), std::nullopt, "2.29.7", true});
  CHECK(pair.Await<DeviceOpened>().registers);
  pair.Connect(kSecond);
  CHECK(!pair.Hear().connect().has_registered_slab());
  pair.launcher().Connect(kFirst, {}, 1, 2, 1024, DeviceSlabId(5), Clock::now() + kPatience);
  CHECK(pair.Hear().connect().registered_slab() == 5);
  pair.Tell(DeviceCommunicatorConnected{kFirst, absl::OkStatus(), false});
  pair.Await<DeviceCommunicatorConnected>();
  CHECK(pair.launcher().Describe()[0].second.registered_bytes == 0);
  pair.Tell(DeviceMemoryRegistered{kSecond, 1, ""});
  pair.Tell(DeviceMemoryRegistered{DeviceCommunicatorId(99), 2, ""});
  pair.Tell(DeviceMemoryRegistered{kFirst, 0, "another rank can't"});
  pair.Tell(DeviceMemoryRegistered{kFirst, 3, ""});
  pair.Enqueue(kFirst, 1);
  pair.Tell(DeviceBucketEnded{1, kFirst, absl::OkStatus(), {}});
  const auto told = pair.Await<DeviceMemoryRegistered>();
  CHECK(told.communicator == kFirst);
  CHECK(told.bytes == 0);
  pair.Await<DeviceBucketEnded>();
  for (const auto& [id, described] : pair.launcher().Describe()) {
    CHECK(described.registered_bytes == 0);
    CHECK(described.not_registered == (id == kFirst ? "another rank can't" : ""));
  }
}

TEST_CASE("TrainerLauncher: buckets of two communicators may have one number") {
  LauncherPair pair;
  pair.Open();
  pair.Connect(kFirst);
  pair.Connect(kSecond);
  pair.Enqueue(kFirst, 1);
  pair.Enqueue(kSecond, 1);
  pair.Tell(DeviceBucketEnded{1, kSecond, absl::OkStatus(), {}});
  pair.Tell(DeviceBucketEnded{1, kFirst, absl::OkStatus(), {}});
  CHECK(pair.Await<DeviceBucketEnded>().communicator == kSecond);
  CHECK(pair.Await<DeviceBucketEnded>().communicator == kFirst);
}

TEST_CASE("TrainerLauncher: that a bucket awaits tensors is told once, and that it does not") {
  LauncherPair pair;
  CHECK(pair.Hear().open().hears_awaits());
  pair.Open();
  pair.Connect(kFirst);
  pair.Enqueue(kFirst, 1);
  for (const bool awaits : {false, true, true, false, true, false}) {
    pair.Tell(DeviceBucketAwaits{1, kFirst, awaits});
    pair.Tell(DeviceBucketAwaits{2, kFirst, awaits});
  }
  pair.Tell(DeviceBucketEnded{1, kFirst, absl::OkStatus(), {}});
  pair.Tell(DeviceBucketAwaits{1, kFirst, true});
  CHECK(pair.Await<DeviceBucketAwaits>().awaits);
  CHECK_FALSE(pair.Await<DeviceBucketAwaits>().awaits);
  CHECK(pair.Await<DeviceBucketEnded>().bucket == 1);
  pair.Enqueue(kFirst, 3);
  pair.Tell(DeviceBucketEnded{3, kFirst, absl::OkStatus(), {}});
  CHECK(pair.Await<DeviceBucketEnded>().bucket == 3);
}

TEST_CASE("TrainerLauncher: a trainer that has gone ends all, and what is asked for later") {
  LauncherPair pair;
  pair.launcher().CreateSlab(DeviceSlabId(5), 4096);
  pair.launcher().CreateId(3);
  pair.launcher().Connect(kFirst, {}, 1, 2, 1024, std::nullopt, Clock::now() + kPatience);
  pair.Enqueue(kFirst, 1);
  pair.HangUp();
  CHECK(!pair.Await<DeviceOpened>().status.ok());
  const absl::Status why = pair.Await<DeviceSlabCreated>().status;
  CHECK_THAT(std::string(why.message()),
             Contains("rank 1 (pid 7)") && Contains("GPU-a") && Contains("has gone"));
  CHECK(pair.Await<NcclIdCreated>().status == why);
  const auto connected = pair.Await<DeviceCommunicatorConnected>();
  CHECK(connected.status == why);
  CHECK(!connected.is_lost_gpu);  // who sees the process knows more
  CHECK(pair.Await<DeviceBucketEnded>().status == why);
  pair.Enqueue(kFirst, 2);
  CHECK(pair.Await<DeviceBucketEnded>().bucket == 2);
  pair.launcher().CreateId(4);
  CHECK(pair.Await<NcclIdCreated>().request == 4);
}

TEST_CASE("TrainerLauncher: a trainer that can't open its GPU is named with the reason") {
  LauncherPair pair;
  pair.launcher().CreateSlab(DeviceSlabId(5), 4096);
  pair.Tell(DeviceOpened{absl::NotFoundError("no libnccl.so.2"), std::nullopt, ""});
  pair.HangUp();
  CHECK(absl::IsNotFound(pair.Await<DeviceOpened>().status));
  const absl::Status why = pair.Await<DeviceSlabCreated>().status;
  CHECK(absl::IsNotFound(why));
  CHECK_THAT(std::string(why.message()), Contains("rank 1 (pid 7): no libnccl.so.2"));
}

TEST_CASE("TrainerLauncher: what nobody has asked for is ignored, and a flood of it ends it") {
  LauncherPair pair;
  pair.Open();
  pair.Connect(kFirst);
  pair.Enqueue(kFirst, 1);
  for (std::uint64_t i = 2; i < 100; ++i) {
    pair.Tell(DeviceBucketEnded{i, kFirst, absl::OkStatus(), {}});
    pair.Tell(DeviceBucketEnded{1, DeviceCommunicatorId(i), absl::OkStatus(), {}});
    pair.Tell(NcclIdCreated{i, absl::OkStatus(), {}});
    pair.Tell(DeviceCommunicatorFailed{DeviceCommunicatorId(i), absl::AbortedError("no"), true});
  }
  pair.Tell(DeviceBucketEnded{1, kFirst, absl::OkStatus(), {}});
  CHECK(pair.Await<DeviceBucketEnded>().bucket == 1);
  CHECK(pair.launcher().TakeEvents().empty());
  const Clock::time_point deadline = Clock::now() + kPatience;
  const std::string lie =
      WriteEvent(DeviceBucketEnded{1, kSecond, absl::OkStatus(), {}})->SerializeAsString();
  std::size_t told = 0;
  while (told < 4 * TrainerLauncher::kMostIgnored && Clock::now() < deadline) {
    if (!pair.Say(lie)) break;
    ++told;
  }
  const auto failed = pair.Await<DeviceCommunicatorFailed>();
  CHECK(failed.is_lost_gpu);
  CHECK_THAT(std::string(failed.status.message()), Contains("what nobody has asked for"));
}

TEST_CASE("TrainerLauncher: bytes that are no event end it") {
  for (const std::string& bytes :
       {std::string("\xff\xff\xff"), std::string(), std::string(200'000, 'x')}) {
    LauncherPair pair;
    pair.Open();
    pair.Connect(kFirst);
    REQUIRE(pair.Say(bytes));
    const auto failed = pair.Await<DeviceCommunicatorFailed>();
    CHECK(failed.is_lost_gpu);
    CHECK_THAT(std::string(failed.status.message()), Contains("broke the protocol"));
  }
}

TEST_CASE("TrainerLauncher: a trainer that reads nothing is given up, with what it is") {
  LauncherPair pair;
  pair.Open();
  pair.Connect(kFirst);
  // A bucket of many tensors, again and again.
  DeviceBucket bucket;
  bucket.communicator = kFirst;
  bucket.tensors.resize(100'000, {DeviceSlabId(1), UINT64_MAX, UINT64_MAX, UINT64_MAX, 0.5, {}});
  bucket.deadline = Clock::now() + kPatience;
  std::uint64_t sent = 0;
  std::optional<DeviceEvent> event;
  while (sent < 200 && !event.has_value()) {
    bucket.id = ++sent;
    pair.launcher().Enqueue(bucket);
    auto events = pair.launcher().TakeEvents();
    if (!events.empty()) event = std::move(events.front());
  }
  REQUIRE(event.has_value());
  CHECK(sent > 1);
  REQUIRE(std::holds_alternative<DeviceCommunicatorFailed>(*event));
  CHECK_THAT(std::string(std::get<DeviceCommunicatorFailed>(*event).status.message()),
             Contains("rank 1 (pid 7)") && Contains("does not read"));
}

TEST_CASE("TrainerLauncher: a bucket, a communicator or an abort without an answer ends in time") {
  const auto look = [](LauncherPair& pair, Clock::duration after) {
    pair.launcher().Look(Clock::now() + after, seconds(30), seconds(60));
  };
  LauncherPair pair;
  pair.Open();
  pair.Connect(kFirst);
  pair.Enqueue(kFirst, 1, seconds(5));
  look(pair, seconds(5));  // the trainer has a moment
  CHECK(pair.launcher().TakeEvents().empty());
  look(pair, seconds(5) + TrainerLauncher::kGrace);
  CHECK_THAT(std::string(pair.Await<DeviceCommunicatorFailed>().status.message()),
             Contains("rank 1 (pid 7)") && Contains("GPU-a") && Contains("a bucket in time"));
  CHECK(pair.Await<DeviceBucketEnded>().bucket == 1);

  LauncherPair aborted;
  aborted.Open();
  aborted.Connect(kFirst);
  aborted.Enqueue(kFirst, 1);
  aborted.launcher().Abort(kFirst, "others have gone");
  look(aborted, milliseconds(100));
  CHECK(aborted.launcher().TakeEvents().empty());
  look(aborted, TrainerLauncher::kGrace + seconds(1));
  CHECK(aborted.Await<DeviceBucketEnded>().bucket == 1);

  LauncherPair connecting;
  connecting.Open();
  connecting.launcher().Connect(kFirst, {}, 1, 2, 1024, std::nullopt, Clock::now() + seconds(2));
  look(connecting, seconds(3) + TrainerLauncher::kGrace);
  CHECK_THAT(std::string(connecting.Await<DeviceCommunicatorConnected>().status.message()),
             Contains("has come about"));

  // So does what has no deadline of the caller's.
  LauncherPair silent;
  silent.launcher().CreateSlab(DeviceSlabId(5), 4096);
  silent.launcher().CreateId(3);
  look(silent, seconds(59));
  CHECK(silent.launcher().TakeEvents().empty());
  look(silent, seconds(61));
  CHECK_THAT(std::string(silent.Await<DeviceOpened>().status.message()),
             Contains("device memory in time"));
  CHECK_FALSE(silent.Await<DeviceSlabCreated>().status.ok());
  CHECK_FALSE(silent.Await<NcclIdCreated>().status.ok());

  LauncherPair without_id;
  without_id.Open();
  without_id.launcher().CreateId(3);
  look(without_id, seconds(61));
  CHECK_THAT(std::string(without_id.Await<NcclIdCreated>().status.message()),
             Contains("NCCL's id in time"));
}

TEST_CASE("TrainerLauncher: a driver that does not come back is told with its step; old news not") {
  const auto tell_step = [](LauncherPair& pair, const std::string& call, seconds since) {
    v1::LaunchEvent step;
    step.mutable_step()->set_call(call);
    step.mutable_step()->set_since_ns(std::chrono::nanoseconds(since).count());
    REQUIRE(pair.Say(step.SerializeAsString()));
    const Clock::time_point deadline = Clock::now() + kPatience;
    while (pair.launcher().activity().call != call && Clock::now() < deadline) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    REQUIRE(pair.launcher().activity().call == call);
  };
  LauncherPair pair;
  pair.Open();
  pair.Connect(kFirst);
  tell_step(pair, "launching", seconds(20));
  pair.launcher().Look(Clock::now(), seconds(30), seconds(60));
  CHECK(pair.launcher().TakeEvents().empty());
  // It says no more: the process may be stopped, and not its driver.
  pair.launcher().Look(Clock::now() + seconds(15), seconds(30), seconds(60));
  CHECK(pair.launcher().TakeEvents().empty());
  tell_step(pair, "launching a bucket", seconds(31));
  pair.launcher().Look(Clock::now(), seconds(30), seconds(60));
  const auto failed = pair.Await<DeviceCommunicatorFailed>();
  CHECK(failed.is_lost_gpu);
  CHECK_THAT(std::string(failed.status.message()), Contains("rank 1 (pid 7)") &&
                                                       Contains("GPU-a") && Contains("for 31 s") &&
                                                       Contains("launching a bucket"));
}

}  // namespace ringd
