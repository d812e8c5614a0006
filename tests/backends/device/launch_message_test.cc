#include "backends/device/launch_message.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace ringd {
namespace {

using std::chrono::seconds;

DeviceBucket SomeBucket(Clock::time_point now) {
  DeviceBucket bucket;
  bucket.id = 7;
  bucket.communicator = DeviceCommunicatorId(3);
  bucket.type = DataType::kInt32;
  bucket.wire_type = DataType::kFloat64;
  bucket.op = ReduceOp::kMax;
  bucket.broadcast = {2, true};
  bucket.tensors.push_back({DeviceSlabId(5), 64, 128, 9, 0.5, {2.0, 3}});
  bucket.tensors.push_back({DeviceSlabId(6), UINT64_MAX, 0, UINT64_MAX, -1.0, {}});
  bucket.ready.push_back({DeviceSlabId(5), 2, 11});
  bucket.done.push_back({DeviceSlabId(5), 3, 11});
  bucket.done.push_back({DeviceSlabId(6), UINT32_MAX, UINT64_MAX});
  bucket.deadline = now + seconds(5);
  return bucket;
}

// Counts what is asked for, and does nothing.
class NoLauncher final : public DeviceLauncher {
 public:
  std::vector<DeviceEvent> TakeEvents() override { return {}; }
  void CreateSlab(DeviceSlabId, std::size_t) override { ++calls; }
  void ReleaseSlab(DeviceSlabId, std::span<const std::uint32_t>) override { ++calls; }
  void ReleaseSlots(DeviceSlabId, std::span<const std::uint32_t>) override { ++calls; }
  void CreateId(std::uint64_t) override { ++calls; }
  void Connect(DeviceCommunicatorId, const NcclIdBytes&, int, int, std::size_t,
               std::optional<DeviceSlabId> slab, Clock::time_point) override {
    ++calls;
    registered_slab = slab;
  }
  void Disconnect(DeviceCommunicatorId, Clock::time_point) override { ++calls; }
  void Abort(DeviceCommunicatorId, absl::string_view) override { ++calls; }
  void Enqueue(DeviceBucket bucket) override {
    ++calls;
    CHECK(IsValid(bucket.type));
    CHECK(IsValid(bucket.op));
    for (const DeviceTensor& tensor : bucket.tensors) CHECK(tensor.result.divisor > 0);
  }
  bool Stop(std::chrono::milliseconds) override { return true; }
  DeviceThreadActivity activity() const override { return {}; }
  std::vector<std::pair<DeviceCommunicatorId, NcclDescription>> Describe() const override {
    return {};
  }

  int calls = 0;
  std::optional<DeviceSlabId> registered_slab;
};

}  // namespace

TEST_CASE("A bucket arrives as it was sent, with what is left of its time") {
  const Clock::time_point now = Clock::now();
  const DeviceBucket sent = SomeBucket(now);
  v1::LaunchBucket message;
  WriteBucket(sent, now, &message);
  const Clock::time_point later = now + seconds(100);  // another process's clock
  const auto read = ReadBucket(message, later);
  REQUIRE(read.ok());
  CHECK(read->id == sent.id);
  CHECK(read->communicator == sent.communicator);
  CHECK(read->type == sent.type);
  CHECK(read->wire_type == sent.wire_type);
  CHECK(read->op == sent.op);
  REQUIRE(read->broadcast.has_value());
  CHECK(read->broadcast->root == 2);
  CHECK(read->broadcast->is_root);
  REQUIRE(read->tensors.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(read->tensors[i].slab == sent.tensors[i].slab);
    CHECK(read->tensors[i].source == sent.tensors[i].source);
    CHECK(read->tensors[i].destination == sent.tensors[i].destination);
    CHECK(read->tensors[i].count == sent.tensors[i].count);
    CHECK(read->tensors[i].prescale == sent.tensors[i].prescale);
    CHECK(read->tensors[i].result == sent.tensors[i].result);
  }
  REQUIRE(read->ready.size() == 1);
  CHECK(read->ready[0].slot == 2);
  CHECK(read->ready[0].value == 11);
  REQUIRE(read->done.size() == 2);
  CHECK(read->done[1].slab == DeviceSlabId(6));
  CHECK(read->done[1].slot == UINT32_MAX);
  CHECK(read->deadline == later + seconds(5));
}

TEST_CASE("A bucket of a type, operator or divisor that there is not is refused") {
  const Clock::time_point now = Clock::now();
  v1::LaunchBucket good;
  WriteBucket(SomeBucket(now), now, &good);
  std::vector<v1::LaunchBucket> bad(5, good);
  bad[0].set_type(kDataTypeCount);
  bad[1].set_wire_type(UINT32_MAX);
  bad[2].set_op(kReduceOpCount);
  bad[3].mutable_tensors(1)->set_divisor(0);
  bad[4].mutable_tensors(0)->set_divisor(-1);
  for (const v1::LaunchBucket& message : bad) {
    CHECK(absl::IsInvalidArgument(ReadBucket(message, now).status()));
  }
  CHECK(ReadBucket(good, now).ok());
}

TEST_CASE("Events arrive as they were sent; one that says nothing to the engine is not") {
  const absl::Status failed = absl::AbortedError("NCCL has failed");
  const auto pass = [](DeviceEvent event) {
    const std::optional<v1::LaunchEvent> message = WriteEvent(event);
    REQUIRE(message.has_value());
    auto read = ReadEvent(*message);
    REQUIRE(read.ok());
    CHECK(read->index() == event.index());
    return *std::move(read);
  };
  const auto opened = std::get<DeviceOpened>(pass(DeviceOpened{failed, false, "2.29.7", true}));
  CHECK(opened.status == failed);
  CHECK(opened.is_under_mps == std::optional<bool>(false));
  CHECK(opened.nccl_version == "2.29.7");
  CHECK(opened.registers);
  CHECK(!std::get<DeviceOpened>(pass(DeviceOpened{})).is_under_mps.has_value());
  CHECK(!std::get<DeviceOpened>(pass(DeviceOpened{})).registers);
  DeviceSlabCreated slab;
  slab.slab = DeviceSlabId(4);
  slab.bytes = 1 << 20;
  const auto created = std::get<DeviceSlabCreated>(pass(std::move(slab)));
  CHECK(created.slab == DeviceSlabId(4));
  CHECK(created.bytes == 1 << 20);
  NcclIdBytes bytes{};
  bytes[0] = 'x';
  bytes[127] = 'y';
  const auto id = std::get<NcclIdCreated>(pass(NcclIdCreated{9, absl::OkStatus(), bytes}));
  CHECK(id.request == 9);
  CHECK(id.id == bytes);
  const auto connected = std::get<DeviceCommunicatorConnected>(
      pass(DeviceCommunicatorConnected{DeviceCommunicatorId(2), absl::OkStatus(), false}));
  CHECK(connected.status.ok());
  const auto registered = std::get<DeviceMemoryRegistered>(
      pass(DeviceMemoryRegistered{DeviceCommunicatorId(2), 1ULL << 40, "why not"}));
  CHECK(registered.communicator == DeviceCommunicatorId(2));
  CHECK(registered.bytes == 1ULL << 40);
  CHECK(registered.why_not == "why not");
  const auto lost = std::get<DeviceCommunicatorFailed>(
      pass(DeviceCommunicatorFailed{DeviceCommunicatorId(2), failed, true}));
  CHECK(lost.is_lost_gpu);
  CHECK(lost.status == failed);
  const auto ended =
      std::get<DeviceBucketEnded>(pass(DeviceBucketEnded{8, DeviceCommunicatorId(2), failed, {}}));
  CHECK(ended.bucket == 8);
  const auto awaits =
      std::get<DeviceBucketAwaits>(pass(DeviceBucketAwaits{8, DeviceCommunicatorId(2), true}));
  CHECK(awaits.bucket == 8);
  CHECK(awaits.communicator == DeviceCommunicatorId(2));
  CHECK(awaits.awaits);
  CHECK(std::get<DeviceLost>(pass(DeviceLost{failed})).status == failed);
  CHECK(!WriteEvent(DeviceSlabReleased{DeviceSlabId(1)}).has_value());
}

TEST_CASE("A communicator's memory is registered if the command names the slab") {
  NoLauncher launcher;
  v1::LaunchCommand command;
  command.mutable_connect()->set_id(std::string(128, 'i'));
  CHECK(Carry(command, Clock::now(), launcher).ok());
  CHECK(!launcher.registered_slab.has_value());
  command.mutable_connect()->set_registered_slab(0);
  CHECK(Carry(command, Clock::now(), launcher).ok());
  CHECK(launcher.registered_slab == DeviceSlabId(0));
}

TEST_CASE("A text that never ends is cut") {
  const auto message = WriteEvent(DeviceLost{absl::AbortedError(std::string(1 << 20, 'x'))});
  CHECK(message->ByteSizeLong() < kMostLaunchEventBytes);
  v1::LaunchEvent long_one;
  long_one.mutable_lost()->set_code(10);
  long_one.mutable_lost()->set_message(std::string(1 << 20, 'x'));
  const auto read = ReadEvent(long_one);
  REQUIRE(read.ok());
  CHECK(std::get<DeviceLost>(*read).status.message().size() < kMostLaunchEventBytes);
}

TEST_CASE("Any bytes are refused, or are commands and events that make sense") {
  std::mt19937_64 random(20261126);
  const Clock::time_point now = Clock::now();
  NoLauncher launcher;
  v1::LaunchCommand bucket;
  WriteBucket(SomeBucket(now), now, bucket.mutable_enqueue());
  v1::LaunchCommand connect;
  connect.mutable_connect()->set_id(std::string(128, 'i'));
  connect.mutable_connect()->set_patience_ns(INT64_MIN);
  const std::vector<std::string> seeds = {
      bucket.SerializeAsString(), connect.SerializeAsString(),
      WriteEvent(DeviceLost{absl::AbortedError("lost")})->SerializeAsString(),
      WriteEvent(NcclIdCreated{})->SerializeAsString(), std::string(200, '\0')};
  int refused = 0;
  int carried = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = seeds[random() % seeds.size()];
    for (std::uint64_t changes = random() % 6; changes > 0; --changes) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    if (random() % 4 == 0) bytes.resize(random() % bytes.size() + 1);
    v1::LaunchCommand command;
    if (command.ParseFromString(bytes)) {
      const int before = launcher.calls;
      const absl::Status status = Carry(command, now, launcher);
      CHECK(status.ok() == (launcher.calls == before + 1));
      ++(status.ok() ? carried : refused);
    }
    v1::LaunchEvent event;
    if (event.ParseFromString(bytes)) static_cast<void>(ReadEvent(event));
  }
  CHECK(carried > 1000);
  CHECK(refused > 100);
}

}  // namespace ringd
