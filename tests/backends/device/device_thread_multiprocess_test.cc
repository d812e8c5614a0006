// Two engines with a GPU each, and two trainers: processes that share slabs, and nothing else.
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/backends/device/tested_gpu.h"
#include "tests/gpu/emulator/cuda/machine_file.h"

namespace ringd {
namespace {

using emulator::Child;
using emulator::EmulatedProcess;
using emulator::MachineFile;
using emulator::NcclRank;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kIdWords = sizeof(NcclIdBytes) / sizeof(std::uint64_t);
constexpr std::uint64_t kSteps = 14;
// Elements of the step's three tensors; where they lie, and their results.
constexpr std::uint64_t kCounts[] = {1000, 1, 7000};
constexpr std::uint64_t kOffsets[] = {0, 8192, 12292};
constexpr std::uint64_t kResults = 65536;

// As the trainer of `rank` has it in `step`.
float Value(int rank, std::uint64_t step, std::uint64_t tensor) {
  return static_cast<float>((rank + 1) * 100 + static_cast<int>(10 * step + tensor));
}

DeviceBucket StepBucket(std::uint64_t step) {
  std::vector<DeviceTensor> tensors;
  for (int i = 0; i < 3; ++i) {
    tensors.push_back(TensorAt(kOffsets[i], kResults + kOffsets[i], kCounts[i]));
  }
  return BucketOf(std::move(tensors), step);
}

// An engine: hands its slab over, meets the other one, and has all steps enqueued. Words: to the
// test the slab, of rank 0 the id; from the test the id, then that somebody has gone.
void RunEngine(const Child& child, int rank, const std::string& faults) {
  ::setenv("RINGD_EMULATOR_NCCL_FAULTS", faults.c_str(), 1);
  TestedGpu gpu(child, rank);
  gpu.thread().CreateSlab(kSlab, kSlabBytes);
  const auto created = gpu.Wait<DeviceSlabCreated>();
  CHILD_STATUS(created.status);
  child.Send(created.bytes, created.descriptor.get());
  NcclIdBytes id{};
  std::uint64_t words[kIdWords];
  if (rank == 0) {
    gpu.thread().CreateId(0);
    const auto made = gpu.Wait<NcclIdCreated>();
    CHILD_STATUS(made.status);
    std::memcpy(words, made.id.data(), sizeof words);
    for (const std::uint64_t word : words) child.Send(word);
  } else {
    for (std::uint64_t& word : words) word = child.Receive();
  }
  std::memcpy(id.data(), words, sizeof words);
  gpu.Connect(id, rank, 2);
  for (std::uint64_t step = 1; step <= kSteps; ++step) gpu.thread().Enqueue(StepBucket(step));
  std::uint64_t step = 0;
  if (faults.empty()) {
    while (step < kSteps) {
      const auto ended = gpu.Wait<DeviceBucketEnded>();
      CHILD_STATUS(ended.status);
      CHILD_CHECK(ended.bucket == ++step);
    }
    child.Send(1);
    child.Receive();
    return;
  }
  child.Send(1);
  child.Receive();
  const Clock::time_point told = Clock::now();
  gpu.thread().Abort(kWorld, "somebody was killed");
  CHILD_REFUSED(absl::StatusCode::kAborted, "somebody was killed",
                gpu.Wait<DeviceCommunicatorFailed>().status);
  while (step < kSteps) CHILD_CHECK(gpu.Wait<DeviceBucketEnded>().bucket == ++step);
  CHILD_CHECK(Clock::now() - told < seconds(10));
  gpu.thread().ReleaseSlab(kSlab, {});
  CHILD_CHECK(gpu.Wait<DeviceSlabReleased>().slab == kSlab);
  CHILD_CHECK(Clock::now() - told < seconds(10));
  child.Send(2);
  child.Receive();
}

// A trainer, whose host waits for nothing: its stream makes tensors, says so, waits for results and
// keeps them.
class Trainer {
 public:
  Trainer(const Child& child, int rank)
      : child_(child),
        rank_(rank),
        context_(OpenGpu(child, rank)),
        scope_(*context_),
        slab_(Receive(child, context_)),
        stream_(CHILD_VALUE(CudaStream::Create(context_))),
        kept_(child.NewMemory(kSteps * 3 * sizeof(float))) {}

  void Step(std::uint64_t step) {
    const Child& child = child_;
    auto* const on = static_cast<CUstream>(stream_.handle());
    for (std::uint64_t i = 0; i < 3; ++i) {
      unsigned bits = 0;
      const float value = Value(rank_, step, i);
      std::memcpy(&bits, &value, sizeof bits);
      CHILD_OK(child.cuda().cuMemsetD32Async(slab_.address() + kTimelineBytes + kOffsets[i], bits,
                                             kCounts[i], on));
    }
    CHILD_STATUS(slab_.timeline().Signal(stream_.handle(), ReadySlot(0), step));
    CHILD_STATUS(slab_.timeline().Wait(stream_.handle(), DoneSlot(0), step));
    for (std::uint64_t i = 0; i < 3; ++i) {
      const DeviceAddress last =
          slab_.address() + kTimelineBytes + kResults + kOffsets[i] + (kCounts[i] - 1) * 4;
      CHILD_OK(child.cuda().cuMemcpyDtoDAsync(kept_ + ((step - 1) * 3 + i) * 4, last, 4, on));
    }
  }

  void CheckSteps(std::uint64_t steps) const {
    const Child& child = child_;
    for (std::uint64_t step = 1; step <= steps; ++step) {
      for (std::uint64_t i = 0; i < 3; ++i) CHILD_CHECK(HasKept(step, i));
    }
  }
  void AwaitStep(std::uint64_t step) const {
    child_.WaitUntil([&] { return HasKept(step, 2); }, "the results of a step");
  }

  bool IsIdle() const { return stream_.WaitIdle(Clock::time_point()).ok(); }
  void WaitIdle() const {
    const Child& child = child_;
    CHILD_STATUS(stream_.WaitIdle(Clock::now() + kPatience));
  }
  const Timeline& timeline() const { return slab_.timeline(); }

 private:
  // The sum of both ranks.
  bool HasKept(std::uint64_t step, std::uint64_t i) const {
    float value = 0;
    std::memcpy(&value, child_.emulator().alias(kept_ + ((step - 1) * 3 + i) * 4, 4), 4);
    return value == Value(0, step, i) + Value(1, step, i);
  }
  static ImportedSlab Receive(const Child& child,
                              const std::shared_ptr<const CudaContext>& context) {
    UniqueFd descriptor;
    const std::uint64_t bytes = child.Receive(&descriptor);
    return CHILD_VALUE(
        ImportedSlab::Import(context, std::move(descriptor), bytes, context->uuid()));
  }

  const Child& child_;
  const int rank_;
  std::shared_ptr<const CudaContext> context_;
  const ScopedContext scope_;
  ImportedSlab slab_;
  CudaStream stream_;
  CUdeviceptr kept_;
};

// The four processes, introduced to each other.
class Job {
 public:
  using TrainerBody = std::function<void(const Child&, int rank)>;

  Job(const std::string& faults, const TrainerBody& body) {
    const emulator::Variables settings =
        machine_.With({{"DEVICES", "2"}, {"KERNELS", kMoveKernels}, {"SLICE_US", "200"}});
    for (int rank = 0; rank < 2; ++rank) {
      engines_.push_back(std::make_unique<EmulatedProcess>(
          settings, [=](const Child& child) { RunEngine(child, rank, faults); }));
      trainers_.push_back(std::make_unique<EmulatedProcess>(
          settings, [=](const Child& child) { body(child, rank); }));
    }
    for (int rank = 0; rank < 2; ++rank) {
      UniqueFd slab;
      const std::uint64_t bytes = engines_[rank]->Receive(&slab);
      CHECK(bytes > kSlabBytes);
      trainers_[rank]->Send(bytes, slab.get());
    }
    for (std::size_t i = 0; i < kIdWords; ++i) engines_[1]->Send(engines_[0]->Receive());
  }

  EmulatedProcess& engine(int rank) { return *engines_[rank]; }
  EmulatedProcess& trainer(int rank) { return *trainers_[rank]; }

 private:
  const MachineFile machine_;
  std::vector<std::unique_ptr<EmulatedProcess>> engines_;
  std::vector<std::unique_ptr<EmulatedProcess>> trainers_;
};

TEST_CASE("Two trainers' tensors are reduced by two engines, ordered on their streams alone") {
  Job job("", [](const Child& child, int rank) {
    Trainer trainer(child, rank);
    for (std::uint64_t step = 1; step <= kSteps; ++step) trainer.Step(step);
    trainer.WaitIdle();
    trainer.CheckSteps(kSteps);
  });
  for (int rank = 0; rank < 2; ++rank) CHECK(job.trainer(rank).Join() == "");
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(job.engine(rank).Receive() == 1);
    job.engine(rank).Send(1);
    CHECK(job.engine(rank).Join() == "");
  }
}

// The 11th collective has begun on rank 0 and never does on rank 1.
constexpr char kHangs[] = "hang@1:12";

TEST_CASE("kill -9 of an engine in a collective: the other aborts, both trainers are let go") {
  Job job(kHangs, [](const Child& child, int rank) {
    Trainer trainer(child, rank);
    for (std::uint64_t step = 1; step <= kSteps; ++step) trainer.Step(step);
    trainer.AwaitStep(10);
    child.Send(1);
    child.Receive();
    CHILD_CHECK(!trainer.IsIdle());
    child.Send(2);
    if (rank == 1) {
      // Its engine was killed.
      child.Receive();
      const std::uint32_t slots[] = {DoneSlot(0)};
      CHILD_STATUS(trainer.timeline().Release(slots));
    }
    trainer.WaitIdle();
    trainer.CheckSteps(10);
    child.Send(3);
    child.Receive();
  });
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(job.engine(rank).Receive() == 1);
    CHECK(job.trainer(rank).Receive() == 1);
  }
  NcclRank::Pause();
  for (int rank = 0; rank < 2; ++rank) {
    job.trainer(rank).Send(1);
    CHECK(job.trainer(rank).Receive() == 2);
  }
  job.engine(1).Kill();
  CHECK(job.engine(1).Join() == "killed by signal 9");
  const Clock::time_point killed = Clock::now();
  job.engine(0).Send(1);
  job.trainer(1).Send(1);
  CHECK(job.engine(0).Receive() == 2);
  for (int rank = 0; rank < 2; ++rank) CHECK(job.trainer(rank).Receive() == 3);
  CHECK(Clock::now() - killed < seconds(10));
  for (int rank = 0; rank < 2; ++rank) {
    job.trainer(rank).Send(1);
    CHECK(job.trainer(rank).Join() == "");
  }
  job.engine(0).Send(1);
  CHECK(job.engine(0).Join() == "");
}

TEST_CASE("kill -9 of a trainer before its tensors are ready: the engines go on without it") {
  Job job(kHangs, [](const Child& child, int rank) {
    Trainer trainer(child, rank);
    const std::uint64_t steps = rank == 0 ? 5 : kSteps;
    for (std::uint64_t step = 1; step <= steps; ++step) trainer.Step(step);
    if (rank == 0) trainer.WaitIdle();
    trainer.AwaitStep(5);
    child.Send(1);
    trainer.WaitIdle();
    trainer.CheckSteps(5);
    child.Receive();
  });
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(job.engine(rank).Receive() == 1);
    CHECK(job.trainer(rank).Receive() == 1);
  }
  NcclRank::Pause();
  job.trainer(0).Kill();
  CHECK(job.trainer(0).Join() == "killed by signal 9");
  for (int rank = 0; rank < 2; ++rank) job.engine(rank).Send(1);
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(job.engine(rank).Receive() == 2);
    job.engine(rank).Send(1);
    CHECK(job.engine(rank).Join() == "");
  }
  job.trainer(1).Send(1);
  CHECK(job.trainer(1).Join() == "");
}

}  // namespace
}  // namespace ringd
