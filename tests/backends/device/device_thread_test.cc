#include "backends/device/device_thread.h"

#include <poll.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "backends/device/device_communicator.h"
#include "tests/backends/device/tested_gpu.h"

namespace ringd {
namespace {

using emulator::Child;
using emulator::EmulatedRanks;
using emulator::Environment;
using emulator::NcclRank;
using emulator::RunRanks;

const Environment kSettings = {{"RINGD_EMULATOR_CUDA_KERNELS", kMoveKernels},
                               {"RINGD_EMULATOR_NCCL_MAX_DELAY_US", "200"}};
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// A rank with its slab and communicator.
struct Rank {
  Rank(const Child& child, const NcclRank& rank)
      : gpu(child, rank.rank()), slab(gpu.NewSlab()), view(child, slab) {
    gpu.Connect(IdOf(rank), rank.rank(), rank.size());
  }

  // Enqueues it with its tensors ready, and waits for its end.
  DeviceBucketEnded Run(const DeviceBucket& bucket) {
    view.SetSlot(ReadySlot(0), bucket.id);
    gpu.thread().Enqueue(bucket);
    return gpu.Wait<DeviceBucketEnded>();
  }

  TestedGpu gpu;
  ImportedSlab slab;
  SlabView view;
};

TEST_CASE("DeviceThread: tensors here and there are reduced as one bucket, out of place") {
  CHECK(
      RunRanks(2, kSettings, [](const Child& child, const NcclRank& rank) {
        Rank self(child, rank);
        const float mine = rank.rank() == 0 ? 1.0F : 10.0F;
        self.view.Write<float>(0, {mine, 2 * mine, 3 * mine});
        self.view.Write<float>(4000, std::vector<float>(5000, mine));
        const Clock::time_point begin = Clock::now();
        const DeviceBucketEnded ended =
            self.Run(BucketOf({TensorAt(0, 40000, 3), TensorAt(4000, 50000, 5000)}, 1));
        CHILD_STATUS(ended.status);
        CHILD_CHECK(ended.bucket == 1);
        CHILD_CHECK(ended.communicator == kWorld);
        CHILD_CHECK(begin <= ended.times.launched);
        CHILD_CHECK(ended.times.launched <= ended.times.ready);
        CHILD_CHECK(ended.times.ready <= ended.times.done);
        CHILD_CHECK(self.view.Slot(DoneSlot(0)) == 1);
        CHILD_CHECK(self.view.Read<float>(40000, 3) == std::vector<float>({11, 22, 33}));
        CHILD_CHECK(self.view.Read<float>(50000, 5000) == std::vector<float>(5000, 11));
        CHILD_CHECK(self.view.Read<float>(0, 3) == std::vector<float>({mine, 2 * mine, 3 * mine}));
      }) == "");
}

TEST_CASE("DeviceThread: averages, scalings, integers and narrow types, packed and in place") {
  CHECK(RunRanks(2, kSettings, [](const Child& child, const NcclRank& rank) {
          Rank self(child, rank);
          const int one = rank.rank() == 0 ? 1 : 4;
          self.view.Write<float>(0, {one * 2.0F, one * 4.0F});
          self.view.Write<std::int64_t>(4096, {one, -one});
          DeviceBucket floats = BucketOf({TensorAt(0, 8192, 2)}, 1);
          floats.op = ReduceOp::kAverage;
          floats.tensors[0].prescale = 10;
          floats.tensors[0].result.factor = 0.5;
          CHILD_STATUS(self.Run(floats).status);
          CHILD_CHECK(self.view.Read<float>(8192, 2) == std::vector<float>({25, 50}));
          CHILD_CHECK(self.view.Read<float>(0, 2) == std::vector<float>({one * 2.0F, one * 4.0F}));
          // Toward minus infinity: 5 / 2 and -5 / 2.
          DeviceBucket integers = BucketOf({TensorAt(4096, 4096, 2)}, 2);
          integers.type = integers.wire_type = DataType::kInt64;
          integers.op = ReduceOp::kAverage;
          CHILD_STATUS(self.Run(integers).status);
          CHILD_CHECK(self.view.Read<std::int64_t>(4096, 2) == std::vector<std::int64_t>({2, -3}));
          DeviceBucket narrow = BucketOf({TensorAt(0, 0, 2)}, 3);
          narrow.wire_type = DataType::kBfloat16;
          CHILD_STATUS(self.Run(narrow).status);
          CHILD_CHECK(self.view.Read<float>(0, 2) == std::vector<float>({10, 20}));
          CHILD_STATUS(self.Run(BucketOf({}, 4)).status);
          CHILD_CHECK(self.view.Slot(DoneSlot(0)) == 4);
        }) == "");
}

TEST_CASE("DeviceThread: buckets wait for their tensors, and end in the order of their launch") {
  CHECK(RunRanks(2, kSettings, [](const Child& child, const NcclRank& rank) {
          Rank self(child, rank);
          constexpr std::uint64_t kBuckets = 50;
          for (std::uint64_t value = 1; value <= kBuckets; ++value) {
            self.gpu.thread().Enqueue(
                BucketOf({TensorAt(64 * value, 64 * value, 2), TensorAt(32000, 32000, 1)}, value));
          }
          NcclRank::Pause();
          DeviceBucketEnded ended;
          CHILD_CHECK(!self.gpu.Take(&ended));
          CHILD_CHECK(self.view.Slot(DoneSlot(0)) == 0);
          for (std::uint64_t value = 1; value <= kBuckets; ++value) {
            self.view.Write<float>(64 * value, {1.0F, static_cast<float>(value)});
            self.view.SetSlot(ReadySlot(0), value);
          }
          for (std::uint64_t value = 1; value <= kBuckets; ++value) {
            ended = self.gpu.Wait<DeviceBucketEnded>();
            CHILD_STATUS(ended.status);
            CHILD_CHECK(ended.bucket == value);
            CHILD_CHECK(self.view.Read<float>(64 * value, 2) ==
                        std::vector<float>({2.0F, 2.0F * static_cast<float>(value)}));
          }
        }) == "");
}

// The emulated NCCL runs a GPU's collectives in the order of their launches, as NCCL may: with two
// orders nothing would ever end.
TEST_CASE(
    "DeviceThread: a rank whose stream is late is told of, and when it has come, and no other") {
  CHECK(RunRanks(2, With(), [](const Child& child, const NcclRank& rank) {
          Rank self(child, rank);
          const bool is_late = rank.rank() == 0;
          if (!is_late) self.view.SetSlot(ReadySlot(0), 2);
          // Of the second one nothing is told: it is not its turn.
          for (std::uint64_t value = 1; value <= 2; ++value) {
            self.gpu.thread().Enqueue(BucketOf({TensorAt(0, 0, 3), TensorAt(64, 64, 3)}, value));
          }
          if (is_late) {
            const auto told = self.gpu.Wait<DeviceBucketAwaits>();
            CHILD_CHECK(told.bucket == 1);
            CHILD_CHECK(told.communicator == kWorld);
            CHILD_CHECK(told.awaits);
            std::this_thread::sleep_for(2 * DeviceCommunicator::kLongAwaited);
            self.view.SetSlot(ReadySlot(0), 2);
          }
          for (std::uint64_t value = 1; value <= 2; ++value) {
            CHILD_STATUS(self.gpu.Wait<DeviceBucketEnded>().status);
          }
          DeviceBucketAwaits told;
          // It may have ended before anybody looked.
          if (self.gpu.Take(&told)) CHILD_CHECK(is_late && told.bucket == 1 && !told.awaits);
          CHILD_CHECK(!self.gpu.Take(&told));
        }) == "");
}

TEST_CASE("DeviceThread: several communicators' buckets are launched in the order of Enqueue") {
  EmulatedRanks ranks(2, kSettings, [](const Child& child, const NcclRank& rank) {
    Rank self(child, rank);
    constexpr DeviceCommunicatorId kOther{2};
    if (rank.rank() == 0) self.gpu.thread().CreateId(3);
    NcclIdBytes id{};
    if (rank.rank() == 0) {
      const auto created = self.gpu.Wait<NcclIdCreated>();
      CHILD_STATUS(created.status);
      CHILD_CHECK(created.request == 3);
      id = created.id;
      for (const char byte : id) child.Send(static_cast<unsigned char>(byte) + 1);
    } else {
      for (char& byte : id) byte = static_cast<char>(child.Receive() - 1);
    }
    self.gpu.Connect(id, rank.rank(), 2, kOther);
    CHILD_CHECK(self.gpu.thread().Describe().size() == 2);
    constexpr std::uint64_t kBuckets = 40;
    for (std::uint64_t value = 1; value <= kBuckets; ++value) {
      self.view.Write<float>(64 * value, {1.0F, 2.0F});
      DeviceBucket bucket = BucketOf({TensorAt(64 * value, 64 * value, 2)}, value);
      if (value % 3 == 0) bucket.communicator = kOther;
      bucket.done[0].slot = DoneSlot(bucket.communicator == kOther ? 1 : 0);
      self.gpu.thread().Enqueue(bucket);
    }
    self.view.SetSlot(ReadySlot(0), kBuckets);
    for (std::uint64_t i = 0; i < kBuckets; ++i) {
      CHILD_STATUS(self.gpu.Wait<DeviceBucketEnded>().status);
    }
    for (std::uint64_t value = 1; value <= kBuckets; ++value) {
      CHILD_CHECK(self.view.Read<float>(64 * value, 2) == std::vector<float>({2.0F, 4.0F}));
    }
  });
  // The second communicator's id.
  for (std::size_t i = 0; i < NcclIdBytes().size(); ++i) ranks[1].Send(ranks[0].Receive());
  CHECK(ranks.Join() == "");
}

// Before 2.26 NCCL's collectives of two communicators may run in any order.
TEST_CASE(
    "DeviceThread: with an old NCCL a communicator waits until the other's buckets are over") {
  Environment old = kSettings;
  old.emplace("RINGD_EMULATOR_NCCL_VERSION", "22507");
  for (const bool is_old : {false, true}) {
    CHECK(RunRanks(1, is_old ? old : kSettings, [=](const Child& child, const NcclRank& rank) {
            Rank self(child, rank);
            constexpr DeviceCommunicatorId kOther{2};
            self.gpu.thread().CreateId(0);
            self.gpu.Connect(self.gpu.Wait<NcclIdCreated>().id, 0, 1, kOther);
            self.gpu.thread().Enqueue(BucketOf({TensorAt(0, 0, 2)}, 1));
            DeviceBucket second = BucketOf({TensorAt(64, 64, 2)}, 2);
            second.communicator = kOther;
            second.ready.clear();
            self.gpu.thread().Enqueue(second);
            NcclRank::Pause();
            self.view.SetSlot(ReadySlot(0), 1);
            const auto one = self.gpu.Wait<DeviceBucketEnded>();
            const auto other = self.gpu.Wait<DeviceBucketEnded>();
            const auto& times = one.bucket == 1 ? one.times : other.times;
            const auto& later = one.bucket == 1 ? other.times : one.times;
            CHILD_CHECK((later.launched >= times.done) == is_old);
          }) == "");
  }
}

TEST_CASE("DeviceThread: a bucket that makes no sense is refused, signalled, and harms nothing") {
  CHECK(RunRanks(2, kSettings, [](const Child& child, const NcclRank& rank) {
          Rank self(child, rank);
          const std::uint64_t end = self.slab.bytes() - kTimelineBytes;
          std::uint64_t value = 0;
          const auto refuse = [&](absl::StatusCode code, const char* text,
                                  const std::function<void(DeviceBucket&)>& spoil) {
            DeviceBucket bucket = BucketOf({TensorAt(0, 64, 4)}, ++value);
            spoil(bucket);
            CHILD_REFUSED(code, text, self.Run(bucket).status);
          };
          using B = DeviceBucket;
          refuse(kInvalid, "not in the slab", [=](B& b) { b.tensors = {TensorAt(end, 0, 1)}; });
          refuse(kInvalid, "not in the slab", [=](B& b) { b.tensors = {TensorAt(0, end - 4, 2)}; });
          refuse(kInvalid, "not in the slab", [](B& b) { b.tensors[0].source = 64; });
          refuse(kInvalid, "not in the slab", [](B& b) { b.tensors[0].destination = ~0ULL; });
          refuse(kInvalid, "not in the slab", [](B& b) { b.tensors[0].count = 1ULL << 62; });
          refuse(kInvalid, "not aligned", [](B& b) { b.tensors[0].source += 2; });
          refuse(kInvalid, "slab 8", [](B& b) { b.tensors[0].slab = DeviceSlabId(8); });
          refuse(kInvalid, "slab 9", [](B& b) { b.ready[0].slab = DeviceSlabId(9); });
          refuse(kInvalid, "divided", [](B& b) { b.tensors[0].result.divisor = 0; });
          refuse(kInvalid, "no slot", [](B& b) { b.ready[0].slot = kTimelineSlots; });
          refuse(kInvalid, "no slot", [](B& b) { b.ready[0].value = ~0ULL; });
          refuse(kInvalid, "travel", [](B& b) { b.wire_type = DataType::kInt32; });
          refuse(kInvalid, "communicator 99",
                 [](B& b) { b.communicator = DeviceCommunicatorId(99); });
          refuse(absl::StatusCode::kUnimplemented, "bool",
                 [](B& b) { b.type = b.wire_type = DataType::kBool; });
          // Also where they lie in one piece, as they may not on the other rank.
          refuse(absl::StatusCode::kResourceExhausted, "`fusion_setting`", [](B& b) {
            b.tensors = {TensorAt(0, 0, kFusionBytes / 4), TensorAt(kFusionBytes, kFusionBytes, 1)};
          });
          CHILD_CHECK(self.view.Slot(DoneSlot(0)) != 0);
          self.view.Write<float>(0, {1, 2, 3, 4});
          self.view.SetSlot(DoneSlot(0), 0);
          CHILD_STATUS(self.Run(BucketOf({TensorAt(0, 64, 4)}, ++value)).status);
          CHILD_CHECK(self.view.Read<float>(64, 4) == std::vector<float>({2, 4, 6, 8}));
          CHILD_CHECK(self.view.Slot(DoneSlot(0)) == value);
        }) == "");
}

TEST_CASE("DeviceThread: a communicator that is left does its buckets, and fails nobody") {
  Environment settings = kSettings;
  settings.emplace("NCCL_HOSTID", "node-%r");
  settings.emplace("RINGD_EMULATOR_NCCL_FAULTS", "slow@1:4=200000");
  CHECK(RunRanks(2, settings, [](const Child& child, const NcclRank& rank) {
          Rank self(child, rank);
          for (std::uint64_t value = 1; value <= 3; ++value) {
            self.gpu.thread().Enqueue(BucketOf({TensorAt(0, 0, 2), TensorAt(64, 64, 2000)}, value));
          }
          self.gpu.thread().Disconnect(kWorld, Clock::now() + kPatience);
          self.gpu.thread().Enqueue(BucketOf({}, 4));
          DeviceBucketEnded ended = self.gpu.Wait<DeviceBucketEnded>();
          CHILD_CHECK(ended.bucket == 4);
          CHILD_REFUSED(kInvalid, "left", ended.status);
          CHILD_CHECK(self.gpu.thread().Describe().size() == 1);
          self.view.SetSlot(ReadySlot(0), 3);
          for (std::uint64_t value = 1; value <= 3; ++value) {
            ended = self.gpu.Wait<DeviceBucketEnded>();
            CHILD_CHECK(ended.bucket == value);
            CHILD_STATUS(ended.status);
          }
          child.WaitUntil([&] { return self.gpu.thread().Describe().empty(); }, "its end");
          DeviceCommunicatorFailed failed;
          CHILD_CHECK(!self.gpu.Take(&failed));
        }) == "");
}

TEST_CASE("DeviceThread: an engine has one for each of its GPUs, as ranks of one communicator") {
  CHECK(RunRanks(2, kSettings, [](const Child& child, const NcclRank& rank) {
          if (rank.rank() != 0) return;
          TestedGpu gpus[] = {TestedGpu(child, 0), TestedGpu(child, 1)};
          const ImportedSlab slabs[] = {gpus[0].NewSlab(), gpus[1].NewSlab()};
          gpus[1].thread().CreateId(0);
          const NcclIdBytes id = gpus[1].Wait<NcclIdCreated>().id;
          for (int i = 0; i < 2; ++i) gpus[i].BeginConnect(id, i, 2);
          for (int i = 0; i < 2; ++i) {
            CHILD_STATUS(gpus[i].Wait<DeviceCommunicatorConnected>().status);
            const SlabView view(child, slabs[i]);
            view.Write<float>(0, {1.0F + static_cast<float>(i), 5});
            view.SetSlot(ReadySlot(0), 1);
            gpus[i].thread().Enqueue(BucketOf({TensorAt(0, 0, 1), TensorAt(4, 64, 1)}, 1));
          }
          for (int i = 0; i < 2; ++i) {
            CHILD_STATUS(gpus[i].Wait<DeviceBucketEnded>().status);
            const SlabView view(child, slabs[i]);
            CHILD_CHECK(view.Read<float>(0, 1)[0] == 3);
            CHILD_CHECK(view.Read<float>(64, 1)[0] == 10);
          }
        }) == "");
}

TEST_CASE("DeviceThread: its descriptor is readable while there are events") {
  CHECK(RunRanks(1, kSettings, [](const Child& child, const NcclRank& rank) {
          TestedGpu gpu(child, rank.rank());
          const auto is_readable = [&] {
            pollfd event{gpu.thread().event_fd(), POLLIN, 0};
            return ::poll(&event, 1, 0) == 1;
          };
          child.WaitUntil(is_readable, "the first event");
          CHILD_STATUS(gpu.Wait<DeviceOpened>().status);
          CHILD_CHECK(!is_readable());
          gpu.NewSlab();
          CHILD_CHECK(!is_readable());
        }) == "");
}

TEST_CASE("DeviceThread: a slab is given back when the GPU is done with it") {
  Environment settings = kSettings;
  settings.emplace("RINGD_EMULATOR_CUDA_MEMORY_MIB", "8");
  CHECK(RunRanks(2, settings, [](const Child& child, const NcclRank& rank) {
          std::optional<Rank> self(std::in_place, child, rank);
          self->gpu.thread().Enqueue(BucketOf({TensorAt(0, 0, 1), TensorAt(64, 64, 1)}, 1));
          NcclRank::Pause();
          // The bucket still waits; releasing its slot lets it go.
          self->gpu.thread().ReleaseSlab(kSlab, {});
          NcclRank::Pause();
          DeviceSlabReleased released;
          CHILD_CHECK(!self->gpu.Take(&released));
          self->view.SetSlot(ReadySlot(0), 1);
          CHILD_STATUS(self->gpu.Wait<DeviceBucketEnded>().status);
          CHILD_CHECK(self->gpu.Wait<DeviceSlabReleased>().slab == kSlab);
          // The trainer keeps the memory until it lets go, too.
          DeviceBucket late = BucketOf({TensorAt(0, 0, 1)}, 2);
          self->gpu.thread().Enqueue(late);
          CHILD_REFUSED(kInvalid, "slab 7", self->gpu.Wait<DeviceBucketEnded>().status);
        }) == "");
}

TEST_CASE("DeviceThread: its end may be begun, and nobody has to wait for it") {
  CHECK(RunRanks(1, kSettings, [](const Child& child, const NcclRank& rank) {
          Rank self(child, rank);
          self.gpu.thread().Enqueue(BucketOf({TensorAt(0, 0, 1)}, 1));  // nothing makes it ready
          CHILD_CHECK(!self.gpu.thread().has_ended());
          self.gpu.thread().BeginStop();
          child.WaitUntil([&] { return self.gpu.thread().has_ended(); }, "the thread's end");
          CHILD_CHECK(!self.gpu.Wait<DeviceBucketEnded>().status.ok());
          CHILD_CHECK(self.gpu.thread().Stop());
        }) == "");
}

}  // namespace
}  // namespace ringd
