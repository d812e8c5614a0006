// How a GPU's thread ends what can't go on, and itself.
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/backends/device/tested_gpu.h"

namespace ringd {
namespace {

using emulator::Child;
using emulator::EmulatedRanks;
using emulator::Environment;
using emulator::NcclRank;
using emulator::RunRanks;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kDeadline = absl::StatusCode::kDeadlineExceeded;
constexpr auto kAborted = absl::StatusCode::kAborted;

// Two tensors apart, so that they are packed; due in `time`.
DeviceBucket Due(std::uint64_t value, milliseconds time) {
  DeviceBucket bucket = BucketOf({TensorAt(0, 0, 3), TensorAt(64, 64, 3)}, value);
  bucket.deadline = Clock::now() + time;
  return bucket;
}

// A trainer's stream that waits for the results up to `value`.
CudaStream WaitingStream(const Child& child, const TestedGpu& gpu, const ImportedSlab& slab,
                         std::uint64_t value) {
  CudaStream stream = CHILD_VALUE(CudaStream::Create(gpu.context()));
  CHILD_STATUS(slab.timeline().Wait(stream.handle(), DoneSlot(0), value));
  return stream;
}

TEST_CASE("A trainer whose stream never gets ready is named, and everything is let go") {
  CHECK(RunRanks(2, With(), [](const Child& child, const NcclRank& rank) {
          TestedGpu gpu(child, rank.rank());
          const ImportedSlab slab = gpu.NewSlab();
          const SlabView view(child, slab);
          gpu.Connect(IdOf(rank), rank.rank(), 2);
          const CudaStream waits = WaitingStream(child, gpu, slab, 2);
          if (rank.rank() == 1) view.SetSlot(ReadySlot(0), 2);
          const Clock::time_point begin = Clock::now();
          for (std::uint64_t value = 1; value <= 2; ++value) {
            gpu.thread().Enqueue(Due(value, milliseconds(300)));
          }
          const auto failed = gpu.Wait<DeviceCommunicatorFailed>();
          const std::string cause = rank.rank() == 0 ? "slot 2 of slab 7 to 1" : "some other";
          CHILD_REFUSED(kDeadline, cause, failed.status);
          CHILD_CHECK(Clock::now() - begin < seconds(10));
          for (std::uint64_t value = 1; value <= 2; ++value) {
            const auto ended = gpu.Wait<DeviceBucketEnded>();
            CHILD_CHECK(ended.bucket == value);
            CHILD_REFUSED(kDeadline, cause, ended.status);
          }
          CHILD_STATUS(waits.WaitIdle(Clock::now() + seconds(10)));
          // And so is the engine's stream: the slab can go.
          gpu.thread().ReleaseSlab(kSlab, {});
          CHILD_CHECK(gpu.Wait<DeviceSlabReleased>().slab == kSlab);
        }) == "");
}

TEST_CASE("A rank whose tensors never come spoils no sum of others, who hear of it and fail, too") {
  // An abort that takes long: what the stream does before is seen.
  const Environment slow = With({{"RINGD_EMULATOR_NCCL_HANG", "ncclCommAbort"}});
  EmulatedRanks ranks(2, slow, [](const Child& child, const NcclRank& rank) {
    TestedGpu gpu(child, rank.rank());
    const ImportedSlab slab = gpu.NewSlab();
    const SlabView view(child, slab);
    gpu.Connect(IdOf(rank), rank.rank(), 2);
    const bool never_comes = rank.rank() == 0;
    if (!never_comes) view.SetSlot(ReadySlot(0), 1);
    gpu.thread().Enqueue(Due(1, never_comes ? milliseconds(100) : seconds(10)));
    if (never_comes) CHILD_REFUSED(kDeadline, "", gpu.Wait<DeviceCommunicatorFailed>().status);
    rank.Meet();
    if (!never_comes) {
      // What a message takes over the network.
      std::this_thread::sleep_for(milliseconds(50));
      gpu.thread().Abort(kWorld, "rank 0 was killed");
    }
    CHILD_REFUSED(never_comes ? kDeadline : kAborted, "", gpu.Wait<DeviceBucketEnded>().status);
  });
  ranks.Meet();
  CHECK(ranks.Join() == "");
}

TEST_CASE("A collective that hangs ends with its deadline, and what comes later with its cause") {
  CHECK(RunRanks(2, With({{"RINGD_EMULATOR_NCCL_FAULTS", "hang@1:3"}}),
                 [](const Child& child, const NcclRank& rank) {
                   TestedGpu gpu(child, rank.rank());
                   const ImportedSlab slab = gpu.NewSlab();
                   const SlabView view(child, slab);
                   gpu.Connect(IdOf(rank), rank.rank(), 2);
                   view.SetSlot(ReadySlot(0), 100);
                   const CudaStream waits = WaitingStream(child, gpu, slab, 5);
                   gpu.thread().Enqueue(Due(1, seconds(10)));
                   CHILD_STATUS(gpu.Wait<DeviceBucketEnded>().status);
                   gpu.thread().Enqueue(Due(2, milliseconds(300)));
                   gpu.thread().Enqueue(Due(3, seconds(10)));
                   for (int i = 0; i < 2; ++i) {
                     CHILD_REFUSED(kDeadline, "6 elements of type float32 over 2 ranks",
                                   gpu.Wait<DeviceBucketEnded>().status);
                   }
                   gpu.thread().Enqueue(Due(4, seconds(10)));
                   CHILD_REFUSED(kDeadline, "6 elements", gpu.Wait<DeviceBucketEnded>().status);
                   CHILD_STATUS(waits.WaitIdle(Clock::now() + seconds(10)));
                   const auto described = gpu.thread().Describe();
                   CHILD_CHECK(described.size() == 1);
                   CHILD_CHECK(described[0].second.failure.find("6 elements") != std::string::npos);
                   gpu.thread().Abort(kWorld, "it has failed");
                   child.WaitUntil([&] { return gpu.thread().Describe().empty(); }, "its end");
                 }) == "");
}

TEST_CASE("An abort ends all of a communicator within a second, and nothing of another one") {
  CHECK(RunRanks(2, With({{"RINGD_EMULATOR_NCCL_FAULTS", "hang@1:2"}}),
                 [](const Child& child, const NcclRank& rank) {
                   TestedGpu gpu(child, rank.rank());
                   const ImportedSlab slab = gpu.NewSlab();
                   const SlabView view(child, slab);
                   constexpr DeviceCommunicatorId kAlone{5};
                   gpu.Connect(IdOf(rank), rank.rank(), 2);
                   gpu.thread().CreateId(0);
                   gpu.Connect(gpu.Wait<NcclIdCreated>().id, 0, 1, kAlone);
                   view.SetSlot(ReadySlot(0), 100);
                   for (std::uint64_t value = 1; value <= 3; ++value) {
                     gpu.thread().Enqueue(Due(value, seconds(10)));
                   }
                   NcclRank::Pause();
                   const Clock::time_point begin = Clock::now();
                   gpu.thread().Abort(kWorld, "rank 1 was killed");
                   CHILD_REFUSED(kAborted, "rank 1 was killed",
                                 gpu.Wait<DeviceCommunicatorFailed>().status);
                   for (std::uint64_t value = 1; value <= 3; ++value) {
                     const auto ended = gpu.Wait<DeviceBucketEnded>();
                     CHILD_CHECK(ended.bucket == value);
                     CHILD_REFUSED(kAborted, "rank 1 was killed", ended.status);
                   }
                   CHILD_CHECK(Clock::now() - begin < seconds(8));
                   // What the stream signalled when it was let go has not undone the release.
                   const CudaStream late = WaitingStream(child, gpu, slab, 100);
                   CHILD_STATUS(late.WaitIdle(Clock::now() + seconds(10)));
                   view.Write<float>(0, {1, 2, 3});
                   DeviceBucket alone = Due(4, seconds(10));
                   alone.communicator = kAlone;
                   gpu.thread().Enqueue(alone);
                   CHILD_STATUS(gpu.Wait<DeviceBucketEnded>().status);
                   CHILD_CHECK(view.Read<float>(0, 3) == std::vector<float>({1, 2, 3}));
                 }) == "");
}

TEST_CASE(
    "Streams that wait for a communicator go on before NCCL frees memory and waits for them") {
  for (const bool is_aborted : {true, false}) {
    REQUIRE(RunRanks(2,
                     With({{"RINGD_EMULATOR_CUDA_FREES_HOLD_UP", "1"},
                           {"RINGD_EMULATOR_CUDA_MAX_DELAY_US", "20000"}}),
                     [is_aborted](const Child& child, const NcclRank& rank) {
                       TestedGpu gpu(child, rank.rank());
                       const ImportedSlab slab = gpu.NewSlab();
                       gpu.Connect(IdOf(rank), rank.rank(), 2);
                       const CudaStream waits = WaitingStream(child, gpu, slab, 1);
                       // Its tensors never get ready: the communicator's own stream waits, too.
                       gpu.thread().Enqueue(Due(1, milliseconds(is_aborted ? 10'000 : 500)));
                       if (is_aborted) {
                         NcclRank::Pause();
                         // Keeps the thread for a while: it comes to the abort late.
                         gpu.thread().CreateSlab(DeviceSlabId(8), kSlabBytes);
                         gpu.thread().Abort(kWorld, "rank 1 was killed");
                       }
                       CHILD_REFUSED(is_aborted ? kAborted : kDeadline, "",
                                     gpu.Wait<DeviceBucketEnded>().status);
                       const SlabView view(child, slab);
                       const auto is_released = [&view] {
                         return view.Slot(DoneSlot(0)) == kTimelineReleased;
                       };
                       child.WaitUntil(is_released, "the release");
                       CHILD_STATUS(waits.WaitIdle(Clock::now() + seconds(10)));
                     }) == "");
  }
}

TEST_CASE("A stream that no release lets go holds up NCCL alone: ends come, the GPU stays") {
  for (const std::string holds_up : {"0", "1"}) {
    CHECK(RunRanks(2,
                   With({{"RINGD_EMULATOR_NCCL_FAULTS", "hang@1:2"},
                         {"RINGD_EMULATOR_CUDA_FREES_HOLD_UP", holds_up}}),
                   [&holds_up](const Child& child, const NcclRank& rank) {
                     TestedGpu gpu(child, rank.rank());
                     const ImportedSlab slab = gpu.NewSlab();
                     const SlabView view(child, slab);
                     view.SetSlot(ReadySlot(0), 100);
                     gpu.Connect(IdOf(rank), rank.rank(), 2);
                     const CudaStream own = CHILD_VALUE(CudaStream::Create(gpu.context()));
                     CHILD_STATUS(slab.timeline().Wait(own.handle(), ReadySlot(9), 1));
                     gpu.thread().Enqueue(Due(1, seconds(30)));
                     NcclRank::Pause();
                     const Clock::time_point begin = Clock::now();
                     gpu.thread().Abort(kWorld, "rank 1 was killed");
                     CHILD_REFUSED(kAborted, "rank 1", gpu.Wait<DeviceBucketEnded>().status);
                     CHILD_CHECK(Clock::now() - begin < seconds(8));
                     if (holds_up == "0") std::this_thread::sleep_until(begin + seconds(11));
                     view.SetSlot(ReadySlot(9), 1);
                     CHILD_STATUS(own.WaitIdle(Clock::now() + seconds(10)));
                     gpu.thread().CreateSlab(DeviceSlabId(8), kSlabBytes);
                     CHILD_STATUS(gpu.Wait<DeviceSlabCreated>().status);
                     DeviceLost lost;
                     CHILD_CHECK(!gpu.Take(&lost));
                   }) == "");
  }
}

TEST_CASE("A communicator that can't be left in peace is aborted when its time is up") {
  CHECK(RunRanks(2, With({{"RINGD_EMULATOR_NCCL_FAULTS", "hang@1:2"}}),
                 [](const Child& child, const NcclRank& rank) {
                   TestedGpu gpu(child, rank.rank());
                   const ImportedSlab slab = gpu.NewSlab();
                   SlabView(child, slab).SetSlot(ReadySlot(0), 100);
                   gpu.Connect(IdOf(rank), rank.rank(), 2);
                   gpu.thread().Enqueue(Due(1, seconds(10)));
                   gpu.thread().Disconnect(kWorld, Clock::now() + milliseconds(300));
                   CHILD_REFUSED(kAborted, "before it had done its work",
                                 gpu.Wait<DeviceBucketEnded>().status);
                   child.WaitUntil([&] { return gpu.thread().Describe().empty(); }, "its end");
                 }) == "");
}

TEST_CASE("NCCL's asynchronous error fails the communicator with NCCL's words") {
  CHECK(RunRanks(2, With({{"RINGD_EMULATOR_NCCL_FAULTS", "error@0:2=6"}}),
                 [](const Child& child, const NcclRank& rank) {
                   TestedGpu gpu(child, rank.rank());
                   const ImportedSlab slab = gpu.NewSlab();
                   SlabView(child, slab).SetSlot(ReadySlot(0), 100);
                   gpu.Connect(IdOf(rank), rank.rank(), 2);
                   gpu.thread().Enqueue(Due(1, milliseconds(rank.rank() == 0 ? 9000 : 300)));
                   const auto ended = gpu.Wait<DeviceBucketEnded>();
                   if (rank.rank() == 0) {
                     CHILD_REFUSED(kAborted, "remote process exited", ended.status);
                   } else {
                     CHILD_REFUSED(kDeadline, "some other", ended.status);
                   }
                 }) == "");
}

TEST_CASE("Ranks that never come: the deadline of Connect, or an abort before it") {
  CHECK(RunRanks(2, With(), [](const Child& child, const NcclRank& rank) {
          if (rank.rank() == 1) {
            for (int i = 0; i < 8; ++i) NcclRank::Pause();
            return;
          }
          TestedGpu gpu(child, 0);
          gpu.thread().Connect(kWorld, IdOf(rank), 0, 2, kFusionBytes, kSlab,
                               Clock::now() + milliseconds(200));
          gpu.thread().Enqueue(BucketOf({}, 1));
          CHILD_REFUSED(kDeadline, "of 2 some never came",
                        gpu.Wait<DeviceCommunicatorConnected>().status);
          CHILD_REFUSED(kDeadline, "of 2 some never came", gpu.Wait<DeviceBucketEnded>().status);
          gpu.thread().CreateId(0);
          gpu.BeginConnect(gpu.Wait<NcclIdCreated>().id, 0, 2, DeviceCommunicatorId(2));
          NcclRank::Pause();
          gpu.thread().Abort(DeviceCommunicatorId(2), "rank 1 is late");
          const auto connected = gpu.Wait<DeviceCommunicatorConnected>();
          CHILD_CHECK(connected.communicator == DeviceCommunicatorId(2));
          CHILD_REFUSED(kAborted, "rank 1 is late", connected.status);
        }) == "");
}

TEST_CASE("A fatal error of CUDA's: the GPU is lost, and everything ends with it") {
  CHECK(RunRanks(2, With(), [](const Child& child, const NcclRank& rank) {
          TestedGpu gpu(child, rank.rank());
          const ImportedSlab slab = gpu.NewSlab();
          gpu.Connect(IdOf(rank), rank.rank(), 2);
          gpu.thread().Enqueue(Due(1, seconds(10)));
          NcclRank::Pause();
          child.emulator().fail_device(rank.rank(), CUDA_ERROR_ECC_UNCORRECTABLE);
          CHILD_REFUSED(kAborted, "CUDA_ERROR_ECC_UNCORRECTABLE", gpu.Wait<DeviceLost>().status);
          CHILD_REFUSED(kAborted, "ECC", gpu.Wait<DeviceCommunicatorFailed>().status);
          CHILD_REFUSED(kAborted, "ECC", gpu.Wait<DeviceBucketEnded>().status);
          gpu.thread().Enqueue(Due(2, seconds(10)));
          CHILD_REFUSED(kAborted, "ECC", gpu.Wait<DeviceBucketEnded>().status);
          gpu.thread().CreateSlab(DeviceSlabId(9), 100);
          CHILD_REFUSED(kAborted, "ECC", gpu.Wait<DeviceSlabCreated>().status);
          gpu.thread().ReleaseSlab(kSlab, {});
          gpu.Wait<DeviceSlabReleased>();
          CHILD_CHECK(gpu.thread().Stop());
        }) == "");
}

TEST_CASE("Stop ends what is in flight; each bucket has one end") {
  CHECK(RunRanks(2, With({{"RINGD_EMULATOR_NCCL_FAULTS", "hang@1:4"}}),
                 [](const Child& child, const NcclRank& rank) {
                   TestedGpu gpu(child, rank.rank());
                   const ImportedSlab slab = gpu.NewSlab();
                   SlabView(child, slab).SetSlot(ReadySlot(0), 1000);
                   gpu.Connect(IdOf(rank), rank.rank(), 2);
                   for (std::uint64_t value = 1; value <= 100; ++value) {
                     gpu.thread().Enqueue(Due(value, seconds(10)));
                   }
                   NcclRank::Pause();
                   // The emulated stream takes its time for each piece of work that is let go.
                   CHILD_CHECK(gpu.thread().Stop(seconds(10)));
                   std::set<std::uint64_t> ended;
                   DeviceBucketEnded one;
                   while (gpu.Take(&one)) {
                     CHILD_CHECK(ended.insert(one.bucket).second);
                     CHILD_CHECK(one.status.ok() == (one.bucket <= 2));
                   }
                   CHILD_CHECK(ended.size() == 100);
                 }) == "");
}

TEST_CASE("A call that never returns does not keep the end, and is named") {
  for (const Environment& hang : {Environment{{"RINGD_EMULATOR_CUDA_HANG", "cuLaunchKernel"}},
                                  Environment{{"RINGD_EMULATOR_NCCL_HANG", "ncclAllReduce"}}}) {
    CHECK(RunRanks(1, With(hang), [](const Child& child, const NcclRank& rank) {
            TestedGpu gpu(child, rank.rank());
            const ImportedSlab slab = gpu.NewSlab();
            SlabView(child, slab).SetSlot(ReadySlot(0), 1000);
            gpu.Connect(IdOf(rank), rank.rank(), 1);
            gpu.thread().Enqueue(Due(1, seconds(10)));
            NcclRank::Pause();
            const DeviceThreadActivity activity = gpu.thread().activity();
            CHILD_CHECK(std::string(activity.call) == "looking after its communicators");
            CHILD_CHECK(Clock::now() - activity.since >= milliseconds(100));
            const Clock::time_point begin = Clock::now();
            gpu.thread().Abort(kWorld, "nothing moves");
            gpu.thread().BeginStop();
            CHILD_CHECK(Clock::now() - begin < seconds(5));
            CHILD_CHECK(!gpu.thread().has_ended());
            CHILD_CHECK(!gpu.thread().Stop(milliseconds(300)));
            CHILD_CHECK(!gpu.thread().Stop());
            CHILD_CHECK(Clock::now() - begin < seconds(10));
          }) == "");
  }
}

TEST_CASE("A communicator whose making never returns is left with its thread") {
  CHECK(RunRanks(1, With({{"RINGD_EMULATOR_NCCL_HANG", "ncclCommInitRankConfig"}}),
                 [](const Child& child, const NcclRank& rank) {
                   TestedGpu gpu(child, rank.rank());
                   gpu.BeginConnect(IdOf(rank), 0, 1);
                   NcclRank::Pause();
                   CHILD_CHECK(std::string(gpu.thread().activity().call) ==
                               "beginning a communicator");
                   gpu.thread().Abort(kWorld, "nothing moves");
                   CHILD_CHECK(!gpu.thread().Stop(milliseconds(200)));
                 }) == "");
}

TEST_CASE("What can't be opened says why, and so does everything that is asked for later") {
  CHECK(RunRanks(1, With(), [](const Child& child, const NcclRank& rank) {
          const std::string uuid = OpenGpu(child, rank.rank())->uuid();
          const auto open = [&](DeviceThreadOptions options, absl::StatusCode code,
                                const char* text) {
            DeviceThread thread(std::move(options));
            std::vector<DeviceEvent> events;
            child.WaitUntil(
                [&] {
                  events = thread.TakeEvents();
                  return !events.empty();
                },
                "DeviceOpened");
            CHILD_REFUSED(code, text, std::get<DeviceOpened>(events.front()).status);
            thread.CreateSlab(kSlab, 100);
            child.WaitUntil(
                [&] {
                  events = thread.TakeEvents();
                  return !events.empty();
                },
                "DeviceSlabCreated");
            CHILD_REFUSED(code, text, std::get<DeviceSlabCreated>(events.front()).status);
          };
          const std::string cuda = emulator::kLibrary;
          const std::string nccl = emulator::kNcclLibrary;
          open({"libnothing.so", nccl, uuid, "", ""}, absl::StatusCode::kNotFound, "libnothing");
          open({cuda, "libnothing.so", uuid, "", ""}, absl::StatusCode::kNotFound, "libnothing");
          open({cuda, nccl, "GPU-0", "", ""}, absl::StatusCode::kNotFound, "GPU-0");
        }) == "");
}

}  // namespace
}  // namespace ringd
