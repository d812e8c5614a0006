#include "client/core/device/host_path.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "proto/base/memfd.h"
#include "proto/base/memory_mapping.h"
#include "tests/backends/cuda/opened_gpu.h"

namespace ringd::client {
namespace {

using emulator::Child;
using emulator::RunEmulated;

constexpr std::size_t kBytes = 4096;
// In eight pieces of 128 KiB.
constexpr std::size_t kLargeBytes = std::size_t{1} << 20;
constexpr std::size_t kPieceBytes = kLargeBytes / 8;
constexpr std::chrono::seconds kPatience{20};

Clock::time_point Soon() { return Clock::now() + kPatience; }

// Operations in host memory, which end when the test says so.
class TestedQueue final : public OperationQueue {
 public:
  struct Submitted {
    Registration* tensor = nullptr;
    char* address = nullptr;
  };

  absl::StatusOr<std::uint64_t> Submit(Registration& tensor, void* address) {
    const MutexLock lock(mutex_);
    if (submitted_.size() >= room_) return absl::ResourceExhaustedError("no room");
    submitted_.push_back({&tensor, static_cast<char*>(address)});
    return submitted_.size() - 1;
  }
  void SetRoom(std::size_t operations) {
    const MutexLock lock(mutex_);
    room_ = operations;
  }
  std::vector<Submitted> submitted() {
    const MutexLock lock(mutex_);
    return submitted_;
  }
  void End(std::uint64_t sequence, const absl::Status& status) {
    const MutexLock lock(mutex_);
    ended_[sequence] = status;
  }

  SubmitResult TrySubmit(Submission& /*record*/, const OperationEnd& /*end*/) override {
    return SubmitResult::kEnded;
  }
  bool WaitForRoom(const OperationEnd& /*end*/) override { return false; }
  WaitResult Wait(std::uint64_t sequence, Clock::time_point deadline) override {
    for (;; std::this_thread::yield()) {
      const WaitResult result = Test(sequence);
      if (result != WaitResult::kTimeout || Clock::now() >= deadline) return result;
    }
  }
  WaitResult Test(std::uint64_t sequence) override {
    const MutexLock lock(mutex_);
    if (ended_.contains(sequence)) return WaitResult::kDone;
    return state.GivenUp() ? WaitResult::kEnded : WaitResult::kTimeout;
  }
  bool Consume(std::uint64_t sequence, OperationOutcome& outcome, OperationEnd& end) override {
    const MutexLock lock(mutex_);
    outcome.completed = ended_.contains(sequence);
    if (outcome.completed) outcome.status = static_cast<std::int32_t>(ended_[sequence].code());
    end.registration = submitted_[sequence].tensor;
    return true;
  }
  std::size_t ConsumeSucceeded(std::span<const std::uint64_t> /*sequences*/,
                               std::vector<OperationEnd>& /*ends*/) override {
    return 0;
  }
  const Registration* FindUsed(
      const std::unordered_set<const Registration*>& /*registrations*/) override {
    return nullptr;
  }
  void WakeAll() noexcept override {}

  SessionState state;

 private:
  Mutex mutex_;
  std::size_t room_ ABSL_GUARDED_BY(mutex_) = 1000;
  std::vector<Submitted> submitted_ ABSL_GUARDED_BY(mutex_);
  std::map<std::uint64_t, absl::Status> ended_ ABSL_GUARDED_BY(mutex_);
};

struct Trainer {
  explicit Trainer(const Child& test, std::size_t arena_bytes = std::size_t{16} << 20)
      : child(test), gpu(OpenGpu(child)) {
    test.UseDevice();
    const UniqueFd fd = CHILD_VALUE(CreateSealedMemfd("arena", arena_bytes));
    arena.emplace(CHILD_VALUE(MemoryMapping::Map(fd.get(), arena_bytes)));
    HostPath::Carrier carrier;
    carrier.submit = [this](Registration& tensor, void* address) {
      return queue.Submit(tensor, address);
    };
    carrier.queue_of = [this](const Registration& /*tensor*/) -> OperationQueue& { return queue; };
    carrier.orders_of = [](const Registration& tensor) {
      StagedCopies::Orders orders;
      if (tensor.bytes < kLargeBytes) return orders;
      orders.source = {7, 6, 5, 4, 3, 2, 1, 0};
      orders.result = {3, 2, 1, 0, 4, 5, 6, 7};
      return orders;
    };
    carrier.submit_in_pieces =
        [this](Registration& tensor, void* address) -> absl::StatusOr<HostPath::Carrier::InPieces> {
      if (!has_records) return absl::UnavailableError("no record");
      const absl::StatusOr<std::uint64_t> submitted = queue.Submit(tensor, address);
      if (!submitted.ok()) return submitted.status();
      return HostPath::Carrier::InPieces{*submitted, 5};
    };
    carrier.tell_piece = [this](std::uint32_t progress, std::uint32_t piece) {
      if (progress == 5) told.fetch_or(1U << piece);
    };
    carrier.final_pieces = [this](std::uint32_t /*progress*/) { return final_pieces.load(); };
    carrier.conclude = [](const OperationOutcome& outcome, const OperationEnd& /*end*/) {
      return absl::Status(static_cast<absl::StatusCode>(outcome.status), "the queue's words");
    };
    carrier.give_up = [this](const absl::Status& why) { queue.state.Lose(why); };
    path = CHILD_VALUE(HostPath::Create(gpu, *arena, queue.state, std::move(carrier)));
    stream = child.NewStream();
  }

  static std::unique_ptr<Registration> Describe(std::uint32_t name, std::uint64_t bytes = kBytes) {
    auto registration = std::make_unique<Registration>();
    registration->description.name = "gradient";
    registration->numbers.tensor = name;
    registration->bytes = bytes;
    registration->element_bytes = 4;
    return registration;
  }
  void* NewMemory(char value, std::size_t bytes = kBytes) const {
    const CUdeviceptr made = child.NewMemory(bytes);
    std::memset(child.emulator().alias(made, bytes), value, bytes);
    return reinterpret_cast<void*>(made);
  }
  char* Look(const void* pointer) const {
    return static_cast<char*>(child.emulator().alias(DeviceAddressOf(pointer), kBytes));
  }
  // What is put on the stream waits until Open.
  CUdeviceptr HoldUp(CUstream on) const {
    const CUdeviceptr gate = child.NewMemory(8);
    std::memset(child.emulator().alias(gate, 8), 0, 8);
    CHILD_OK(child.cuda().cuStreamWaitValue64(on, gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
    return gate;
  }
  void Open(CUdeviceptr gate) const {
    CHILD_OK(child.cuda().cuStreamWriteValue64(child.NewStream(), gate, 1, 0));
  }
  std::vector<TestedQueue::Submitted> AwaitSubmitted(std::size_t count) {
    child.WaitUntil([&] { return queue.submitted().size() >= count; }, "submissions");
    return queue.submitted();
  }
  absl::Status Finish(std::uint64_t sequence) const {
    OperationOutcome outcome;
    OperationEnd end;
    CHILD_CHECK(path->Consume(sequence, outcome, end));
    CHILD_CHECK(outcome.completed);
    return path->staging().Finish(std::span(&end, 1));
  }

  const Child& child;
  std::shared_ptr<const CudaContext> gpu;
  std::optional<Arena> arena;
  TestedQueue queue;
  bool has_records = true;
  std::atomic<std::uint32_t> told{0};          // bits of pieces
  std::atomic<std::uint64_t> final_pieces{0};  // likewise
  std::unique_ptr<HostPath> path;
  CUstream stream = nullptr;
};

TEST_CASE("HostPath: a tensor is submitted when its source is there, its stream gets the result") {
  CHECK(RunEmulated({}, [](const Child& child) {
          Trainer trainer(child);
          const auto tensor = Trainer::Describe(1);
          void* const gradient = trainer.NewMemory(3);
          const CUdeviceptr gate = trainer.HoldUp(trainer.stream);
          const std::uint64_t operation =
              CHILD_VALUE(trainer.path->Submit(*tensor, gradient, gradient, trainer.stream));
          CHILD_STATUS(trainer.path->StreamWait(operation, trainer.stream));
          CHILD_CHECK(trainer.path->Wait(operation, Clock::now() + std::chrono::milliseconds(30)) ==
                      WaitResult::kTimeout);
          CHILD_CHECK(trainer.queue.submitted().empty());
          trainer.Open(gate);
          char* const block = trainer.AwaitSubmitted(1)[0].address;
          CHILD_CHECK(block[0] == 3 && block[kBytes - 1] == 3);
          CHILD_CHECK(!child.IsDone(trainer.stream));
          std::memset(block, 8, kBytes);
          trainer.queue.End(0, absl::OkStatus());
          CHILD_CHECK(trainer.path->Wait(operation, Soon()) == WaitResult::kDone);
          CHILD_OK(child.cuda().cuStreamSynchronize(trainer.stream));
          CHILD_CHECK(trainer.Look(gradient)[0] == 8 && trainer.Look(gradient)[kBytes - 1] == 8);
          CHILD_STATUS(trainer.Finish(operation));
        }) == "");
}

TEST_CASE("HostPath: who only waits for the operation finds its result in place") {
  CHECK(RunEmulated({}, [](const Child& child) {
          Trainer trainer(child);
          const auto tensor = Trainer::Describe(1);
          void* const source = trainer.NewMemory(3);
          void* const target = trainer.NewMemory(0);
          const std::uint64_t operation =
              CHILD_VALUE(trainer.path->Submit(*tensor, source, target, trainer.stream));
          std::memset(trainer.AwaitSubmitted(1)[0].address, 8, kBytes);
          trainer.queue.End(0, absl::OkStatus());
          CHILD_CHECK(trainer.path->Wait(operation, Soon()) == WaitResult::kDone);
          std::vector<OperationEnd> ends;
          CHILD_CHECK(trainer.path->ConsumeSucceeded(std::span(&operation, 1), ends) == 1);
          CHILD_STATUS(trainer.path->staging().Finish(ends));
          CHILD_CHECK(trainer.Look(target)[kBytes - 1] == 8);
          CHILD_CHECK(trainer.Look(source)[0] == 3);
          CHILD_CHECK(trainer.path->Test(operation) == WaitResult::kUnknown);
        }) == "");
}

TEST_CASE("HostPath: operations of one name keep their order, others go as they come") {
  CHECK(RunEmulated({}, [](const Child& child) {
          Trainer trainer(child);
          const auto first = Trainer::Describe(1);
          const auto other = Trainer::Describe(2);
          const CUstream early = child.NewStream();
          const CUdeviceptr gate = trainer.HoldUp(trainer.stream);
          const auto submit = [&](Registration& tensor, char value, CUstream on) {
            void* const memory = trainer.NewMemory(value);
            return CHILD_VALUE(trainer.path->Submit(tensor, memory, memory, on));
          };
          submit(*first, 1, trainer.stream);
          submit(*first, 2, early);
          submit(*other, 3, early);
          CHILD_OK(child.cuda().cuStreamSynchronize(early));
          CHILD_CHECK(trainer.AwaitSubmitted(1)[0].address[0] == 3);
          std::this_thread::sleep_for(std::chrono::milliseconds(30));
          CHILD_CHECK(trainer.queue.submitted().size() == 1);
          trainer.Open(gate);
          const auto submitted = trainer.AwaitSubmitted(3);
          CHILD_CHECK(submitted[1].address[0] == 1 && submitted[2].address[0] == 2);
          for (std::uint64_t i = 0; i < 3; ++i) trainer.queue.End(i, absl::OkStatus());
          CHILD_CHECK(trainer.path->Wait(1, Soon()) == WaitResult::kDone);
        }) == "");
}

TEST_CASE("HostPath: where there is no room for an operation, it is submitted later") {
  CHECK(RunEmulated({}, [](const Child& child) {
          Trainer trainer(child);
          trainer.queue.SetRoom(0);
          const auto tensor = Trainer::Describe(1);
          void* const gradient = trainer.NewMemory(3);
          const std::uint64_t operation =
              CHILD_VALUE(trainer.path->Submit(*tensor, gradient, gradient, trainer.stream));
          std::this_thread::sleep_for(std::chrono::milliseconds(30));
          CHILD_CHECK(trainer.path->Test(operation) == WaitResult::kTimeout);
          trainer.queue.SetRoom(1);
          trainer.AwaitSubmitted(1);
          trainer.queue.End(0, absl::OkStatus());
          CHILD_CHECK(trainer.path->Wait(operation, Soon()) == WaitResult::kDone);
        }) == "");
}

TEST_CASE("HostPath: a large tensor is submitted with its first pieces, its result comes in some") {
  CHECK(RunEmulated({}, [](const Child& child) {
          Trainer trainer(child);
          const auto tensor = Trainer::Describe(1, kLargeBytes);
          void* const source = trainer.NewMemory(3, kLargeBytes);
          void* const target = trainer.NewMemory(0, kLargeBytes);
          const CUstream reader = child.NewStream();
          const std::uint64_t operation =
              CHILD_VALUE(trainer.path->Submit(*tensor, source, target, trainer.stream));
          CHILD_STATUS(trainer.path->StreamWait(operation, reader));
          char* const block = trainer.AwaitSubmitted(1)[0].address;
          child.WaitUntil([&] { return trainer.told.load() == 0xff; }, "all pieces");
          CHILD_CHECK(block[0] == 3 && block[kLargeBytes - 1] == 3);
          // The half of the result that is taken to come first.
          std::memset(block, 8, kLargeBytes / 2);
          const auto* const got =
              static_cast<const volatile char*>(child.emulator().alias(DeviceAddressOf(target), 1));
          trainer.final_pieces = 0x7;
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          CHILD_CHECK(got[0] == 0);
          trainer.final_pieces = 0xf;
          child.WaitUntil([&] { return got[0] == 8 && got[4 * kPieceBytes - 1] == 8; }, "a half");
          CHILD_CHECK(!child.IsDone(reader));
          CHILD_CHECK(trainer.path->Test(operation) == WaitResult::kTimeout);
          std::memset(block + kLargeBytes / 2, 9, kLargeBytes / 2);
          trainer.queue.End(0, absl::OkStatus());
          CHILD_CHECK(trainer.path->Wait(operation, Soon()) == WaitResult::kDone);
          CHILD_OK(child.cuda().cuStreamSynchronize(reader));
          CHILD_CHECK(got[0] == 8 && got[4 * kPieceBytes] == 9 && got[kLargeBytes - 1] == 9);
          CHILD_STATUS(trainer.Finish(operation));
        }) == "");
}

TEST_CASE("HostPath: without a record a large tensor goes as a whole") {
  CHECK(RunEmulated({}, [](const Child& child) {
          Trainer trainer(child);
          trainer.has_records = false;
          const auto tensor = Trainer::Describe(1, kLargeBytes);
          void* const gradient = trainer.NewMemory(3, kLargeBytes);
          const std::uint64_t operation =
              CHILD_VALUE(trainer.path->Submit(*tensor, gradient, gradient, trainer.stream));
          CHILD_STATUS(trainer.path->StreamWait(operation, trainer.stream));
          char* const block = trainer.AwaitSubmitted(1)[0].address;
          CHILD_CHECK(block[0] == 3 && block[kLargeBytes - 1] == 3);
          std::memset(block, 8, kLargeBytes);
          trainer.queue.End(0, absl::OkStatus());
          CHILD_CHECK(trainer.path->Wait(operation, Soon()) == WaitResult::kDone);
          CHILD_OK(child.cuda().cuStreamSynchronize(trainer.stream));
          CHILD_CHECK(trainer.Look(gradient)[0] == 8);
          CHILD_CHECK(trainer.told.load() == 0);
        }) == "");
}

TEST_CASE("HostPath: an operation that fails lets its stream go, and says why") {
  CHECK(RunEmulated({}, [](const Child& child) {
          Trainer trainer(child);
          const auto tensor = Trainer::Describe(1);
          void* const gradient = trainer.NewMemory(3);
          const std::uint64_t operation =
              CHILD_VALUE(trainer.path->Submit(*tensor, gradient, gradient, trainer.stream));
          CHILD_STATUS(trainer.path->StreamWait(operation, trainer.stream));
          trainer.AwaitSubmitted(1);
          trainer.queue.End(0, absl::InvalidArgumentError("ranks differ"));
          CHILD_CHECK(trainer.path->Wait(operation, Soon()) == WaitResult::kDone);
          CHILD_OK(child.cuda().cuStreamSynchronize(trainer.stream));
          OperationOutcome outcome;
          OperationEnd end;
          CHILD_CHECK(trainer.path->Consume(operation, outcome, end));
          CHILD_CHECK(outcome.status == static_cast<int>(absl::StatusCode::kInvalidArgument));
          CHILD_CHECK(*outcome.text == "the queue's words");
          CHILD_CHECK(end.registration == tensor.get());
        }) == "");
}

TEST_CASE("HostPath: when the context ends, so do all operations, and streams go on") {
  CHECK(RunEmulated({}, [](const Child& child) {
          Trainer trainer(child);
          const auto first = Trainer::Describe(1);
          const auto second = Trainer::Describe(2);
          void* const memory = trainer.NewMemory(3);
          void* const other = trainer.NewMemory(4);
          const CUstream held = child.NewStream();
          const CUdeviceptr gate = trainer.HoldUp(held);
          const std::uint64_t submitted =
              CHILD_VALUE(trainer.path->Submit(*first, memory, memory, trainer.stream));
          const std::uint64_t copying =
              CHILD_VALUE(trainer.path->Submit(*second, other, other, held));
          CHILD_STATUS(trainer.path->StreamWait(submitted, trainer.stream));
          CHILD_STATUS(trainer.path->StreamWait(copying, trainer.stream));
          trainer.AwaitSubmitted(1);
          trainer.queue.state.Lose(absl::UnavailableError("ringd has gone"));
          trainer.path->WakeAll();
          CHILD_CHECK(trainer.path->Wait(submitted, Soon()) == WaitResult::kEnded);
          CHILD_CHECK(trainer.path->Wait(copying, Soon()) != WaitResult::kTimeout);
          // The copies that follow the waits are behind the one that is held up.
          trainer.Open(gate);
          CHILD_OK(child.cuda().cuStreamSynchronize(trainer.stream));
          Registration& tensor = *first;
          CHILD_REFUSED(absl::StatusCode::kUnavailable, "ringd has gone",
                        trainer.path->Submit(tensor, memory, memory, trainer.stream).status());
        }) == "");
}

TEST_CASE("HostPath: a process that ends lets streams go") {
  CHECK(RunEmulated({}, [](const Child& child) {
          Trainer trainer(child);
          const auto tensor = Trainer::Describe(1);
          void* const memory = trainer.NewMemory(3);
          const std::uint64_t operation =
              CHILD_VALUE(trainer.path->Submit(*tensor, memory, memory, trainer.stream));
          CHILD_STATUS(trainer.path->StreamWait(operation, trainer.stream));
          trainer.AwaitSubmitted(1);
          trainer.path->Stop();
          trainer.path->Stop();
          CHILD_OK(child.cuda().cuStreamSynchronize(trainer.stream));
          CHILD_CHECK(trainer.path->Wait(operation, Soon()) == WaitResult::kEnded);
        }) == "");
}

TEST_CASE("HostPath: a GPU that has failed ends this rank's part") {
  CHECK(RunEmulated({}, [](const Child& child) {
          Trainer trainer(child);
          const auto tensor = Trainer::Describe(1);
          void* const memory = trainer.NewMemory(3);
          trainer.HoldUp(trainer.stream);
          const std::uint64_t operation =
              CHILD_VALUE(trainer.path->Submit(*tensor, memory, memory, trainer.stream));
          child.emulator().fail_device(0, CUDA_ERROR_ILLEGAL_ADDRESS);
          CHILD_CHECK(trainer.path->Wait(operation, Soon()) == WaitResult::kDone);
          CHILD_REFUSED(absl::StatusCode::kAborted, "sources can't be copied from the GPU",
                        trainer.queue.state.status());
        }) == "");
}

TEST_CASE("HostPath: a GPU that fails amid the pieces of a large tensor ends this rank's part") {
  CHECK(RunEmulated({{"MAX_DELAY_US", "200000"}}, [](const Child& child) {
          Trainer trainer(child);
          const auto tensor = Trainer::Describe(1, kLargeBytes);
          void* const memory = trainer.NewMemory(3, kLargeBytes);
          CHILD_VALUE(trainer.path->Submit(*tensor, memory, memory, trainer.stream));
          trainer.AwaitSubmitted(1);
          child.emulator().fail_device(0, CUDA_ERROR_ILLEGAL_ADDRESS);
          CHILD_CHECK(trainer.told.load() != 0xff);
          child.WaitUntil([&] { return !trainer.queue.state.alive(); }, "the loss");
          CHILD_REFUSED(absl::StatusCode::kAborted, "sources can't be copied from the GPU",
                        trainer.queue.state.status());
        }) == "");
}

TEST_CASE("HostPath: an arena that is full is told with its setting") {
  CHECK(RunEmulated({}, [](const Child& child) {
          Trainer trainer(child, std::size_t{2} << 20);
          const auto tensor = Trainer::Describe(1, std::size_t{2} << 20);
          void* const memory = trainer.NewMemory(3, std::size_t{2} << 20);
          CHILD_REFUSED(absl::StatusCode::kResourceExhausted, "arena_bytes",
                        trainer.path->Submit(*tensor, memory, memory, trainer.stream).status());
          // What fits is still taken.
          const auto small = Trainer::Describe(2);
          CHILD_VALUE(trainer.path->Submit(*small, memory, memory, trainer.stream));
        }) == "");
}

TEST_CASE("HostPath: more operations than there are values wait for room") {
  CHECK(RunEmulated({}, [](const Child& child) {
          Trainer trainer(child, std::size_t{64} << 20);
          trainer.queue.SetRoom(PinnedArena::kPairs + 1);
          const auto tensor = Trainer::Describe(1, 64);
          void* const memory = trainer.NewMemory(3);
          for (std::uint32_t i = 0; i < PinnedArena::kPairs; ++i) {
            CHILD_VALUE(trainer.path->Submit(*tensor, memory, memory, trainer.stream));
          }
          Submission record{};
          OperationEnd end;
          end.registration = tensor.get();
          CHILD_CHECK(trainer.path->TrySubmit(record, end) == SubmitResult::kFull);
          trainer.AwaitSubmitted(1);
          trainer.queue.End(0, absl::OkStatus());
          CHILD_CHECK(trainer.path->WaitForRoom(end));
          CHILD_VALUE(trainer.path->Submit(*tensor, memory, memory, trainer.stream));
        }) == "");
}

}  // namespace
}  // namespace ringd::client
