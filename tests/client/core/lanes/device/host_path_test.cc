#include "client/core/lanes/device/host_path.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/client/core/lanes/device/tested_host_path.h"

namespace ringd::client {
namespace {

TEST_CASE("HostPath: a tensor is submitted when its source is there, its stream gets the result") {
  CHECK(RunEmulated({}, [](const Child& child) {
          Trainer trainer(child);
          Registration* const tensor = trainer.Describe(1);
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
          Registration* const tensor = trainer.Describe(1);
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

// What is put on the stream waits until the flag is set.
void HoldUpByHost(const Child& child, CUstream stream, std::atomic<bool>& flag) {
  const auto wait = [](void* open) {
    while (!static_cast<std::atomic<bool>*>(open)->load()) std::this_thread::yield();
  };
  CHILD_OK(child.cuda().cuLaunchHostFunc(stream, wait, &flag));
}

TEST_CASE("HostPath: without stream memory operations events tell, and StreamWait waits") {
  CHECK(RunEmulated({{"STREAM_MEMORY_OPERATIONS", "0"}}, [](const Child& child) {
          Trainer trainer(child);
          // Not in pieces.
          Registration* const tensor = trainer.Describe(1, kLargeBytes);
          void* const source = trainer.NewMemory(3, kLargeBytes);
          void* const target = trainer.NewMemory(0, kLargeBytes);
          std::atomic<bool> open = false;
          HoldUpByHost(child, trainer.stream, open);
          const std::uint64_t operation =
              CHILD_VALUE(trainer.path->Submit(*tensor, source, target, trainer.stream));
          std::this_thread::sleep_for(std::chrono::milliseconds(30));
          CHILD_CHECK(trainer.queue.submitted().empty());
          open = true;
          char* const block = trainer.AwaitSubmitted(1)[0].address;
          CHILD_CHECK(block[0] == 3 && block[kLargeBytes - 1] == 3);
          int asked = 0;
          CHILD_CHECK(absl::IsCancelled(trainer.path->StreamWait(
              operation, trainer.stream, [&asked] { return ++asked == 2; })));
          const CUstream reader = child.NewStream();
          std::thread rank([&] {
            std::memset(block, 8, kLargeBytes);
            trainer.queue.End(0, absl::OkStatus());
          });
          CHILD_STATUS(trainer.path->StreamWait(operation, reader));
          CHILD_CHECK(trainer.path->Test(operation) == WaitResult::kDone);
          rank.join();
          CHILD_OK(child.cuda().cuStreamSynchronize(reader));
          CHILD_CHECK(trainer.Look(target)[0] == 8);
          CHILD_STATUS(trainer.Finish(operation));
          CHILD_CHECK(absl::IsNotFound(trainer.path->StreamWait(operation, reader)));
        }) == "");
}

TEST_CASE("HostPath: without stream memory operations, too, a context that ends lets waits go") {
  CHECK(RunEmulated({{"STREAM_MEMORY_OPERATIONS", "0"}}, [](const Child& child) {
          Trainer trainer(child);
          Registration* const tensor = trainer.Describe(1);
          void* const gradient = trainer.NewMemory(3);
          const std::uint64_t operation =
              CHILD_VALUE(trainer.path->Submit(*tensor, gradient, gradient, trainer.stream));
          trainer.AwaitSubmitted(1);
          std::thread end([&] { trainer.path->Stop(); });
          CHILD_STATUS(trainer.path->StreamWait(operation, trainer.stream));
          end.join();
          CHILD_CHECK(trainer.path->Test(operation) == WaitResult::kEnded);
        }) == "");
}

TEST_CASE("HostPath: operations of one name keep their order, others go as they come") {
  CHECK(RunEmulated({}, [](const Child& child) {
          Trainer trainer(child);
          Registration* const first = trainer.Describe(1);
          Registration* const other = trainer.Describe(2);
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
          Registration* const tensor = trainer.Describe(1);
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
          Registration* const tensor = trainer.Describe(1, kLargeBytes);
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
          Registration* const tensor = trainer.Describe(1, kLargeBytes);
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
          Registration* const tensor = trainer.Describe(1);
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
          CHILD_CHECK(end.registration == tensor);
        }) == "");
}

TEST_CASE("HostPath: when the context ends, so do all operations, and streams go on") {
  CHECK(RunEmulated({}, [](const Child& child) {
          Trainer trainer(child);
          Registration* const first = trainer.Describe(1);
          Registration* const second = trainer.Describe(2);
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
          Registration* const tensor = trainer.Describe(1);
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
          Registration* const tensor = trainer.Describe(1);
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
          Registration* const tensor = trainer.Describe(1, kLargeBytes);
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
          Registration* const tensor = trainer.Describe(1, std::size_t{2} << 20);
          void* const memory = trainer.NewMemory(3, std::size_t{2} << 20);
          CHILD_REFUSED(absl::StatusCode::kResourceExhausted, "arena_bytes",
                        trainer.path->Submit(*tensor, memory, memory, trainer.stream).status());
          // What fits is still taken.
          Registration* const small = trainer.Describe(2);
          CHILD_VALUE(trainer.path->Submit(*small, memory, memory, trainer.stream));
        }) == "");
}

TEST_CASE("HostPath: more operations than there are values wait for room") {
  CHECK(RunEmulated({}, [](const Child& child) {
          Trainer trainer(child, std::size_t{64} << 20);
          trainer.queue.SetRoom(PinnedArena::kPairs + 1);
          Registration* const tensor = trainer.Describe(1, 64);
          void* const memory = trainer.NewMemory(3);
          for (std::uint32_t i = 0; i < PinnedArena::kPairs; ++i) {
            CHILD_VALUE(trainer.path->Submit(*tensor, memory, memory, trainer.stream));
          }
          Submission record{};
          OperationEnd end;
          end.registration = tensor;
          CHILD_CHECK(trainer.path->TrySubmit(record, end) == SubmitResult::kFull);
          trainer.AwaitSubmitted(1);
          trainer.queue.End(0, absl::OkStatus());
          CHILD_CHECK(trainer.path->WaitForRoom(end, Clock::time_point::max()));
          CHILD_VALUE(trainer.path->Submit(*tensor, memory, memory, trainer.stream));
        }) == "");
}

}  // namespace
}  // namespace ringd::client
