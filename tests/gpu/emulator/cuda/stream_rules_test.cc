// Rules about streams and values in memory. README.md names the documents.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/emulator/cuda/emulated_process.h"

namespace ringd::emulator {
namespace {

TEST_CASE("Emulated streams: work is done in order, and the caller does not wait for it") {
  CHECK(RunEmulated({{"MAX_DELAY_US", "500"}}, [](const Child& child) {
          child.UseDevice();
          const CUstream stream = child.NewStream();
          const CUdeviceptr memory = child.NewMemory(64);
          CHILD_OK(
              child.cuda().cuStreamWaitValue64(stream, memory + 16, 1, CU_STREAM_WAIT_VALUE_GEQ));
          for (std::uint64_t i = 1; i <= 20; ++i) {
            CHILD_OK(child.cuda().cuStreamWriteValue64(stream, memory, i, 0));
            CHILD_OK(child.cuda().cuMemcpyDtoDAsync(memory + 8, memory, 8, stream));
          }
          CHILD_CUDA(CUDA_ERROR_NOT_READY, child.cuda().cuStreamQuery(stream));
          CHILD_CHECK(child.Read(memory) == 0);
          CHILD_OK(child.cuda().cuStreamWriteValue64(child.NewStream(), memory + 16, 1, 0));
          CHILD_OK(child.cuda().cuStreamSynchronize(stream));
          CHILD_OK(child.cuda().cuStreamQuery(stream));
          CHILD_CHECK(child.Read(memory + 8) == 20);
        }) == "");
}

TEST_CASE("Emulated streams: two of them are not ordered, and a seed shows another order") {
  // The second stream's work is first for some seed, and last for some other.
  std::vector<std::string> outcomes;
  for (int seed = 1; seed <= 12; ++seed) {
    outcomes.push_back(RunEmulated(
        {{"MAX_DELAY_US", "20000"}, {"SEED", std::to_string(seed)}}, [](const Child& child) {
          child.UseDevice();
          const CUstream first = child.NewStream();
          const CUstream second = child.NewStream();
          const CUdeviceptr memory = child.NewMemory(8);
          CHILD_OK(child.cuda().cuStreamWriteValue64(first, memory, 1, 0));
          CHILD_OK(child.cuda().cuStreamWriteValue64(second, memory, 2, 0));
          CHILD_OK(child.cuda().cuCtxSynchronize());
          ::_exit(child.Read(memory) == 1 ? 11 : 22);
        }));
  }
  CHECK(std::count(outcomes.begin(), outcomes.end(), "exit code 11") > 0);
  CHECK(std::count(outcomes.begin(), outcomes.end(), "exit code 22") > 0);
}

TEST_CASE("Emulated streams: a wait blocks its own stream until the value is there") {
  CHECK(RunEmulated({}, [](const Child& child) {
          child.UseDevice();
          const CUstream waiting = child.NewStream();
          const CUstream other = child.NewStream();
          const CUdeviceptr memory = child.NewMemory(16);
          CHILD_OK(child.cuda().cuStreamWaitValue64(waiting, memory, 5, CU_STREAM_WAIT_VALUE_GEQ));
          CHILD_OK(child.cuda().cuStreamWriteValue64(waiting, memory + 8, 1, 0));
          CHILD_OK(child.cuda().cuStreamWriteValue64(other, memory, 4, 0));
          CHILD_OK(child.cuda().cuStreamSynchronize(other));
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          CHILD_CUDA(CUDA_ERROR_NOT_READY, child.cuda().cuStreamQuery(waiting));
          CHILD_CHECK(child.Read(memory + 8) == 0);
          CHILD_OK(child.cuda().cuStreamWriteValue64(other, memory, 6, 0));
          CHILD_OK(child.cuda().cuStreamSynchronize(waiting));
          CHILD_CHECK(child.Read(memory + 8) == 1);
        }) == "");
}

TEST_CASE("Emulated streams: a wait's conditions are CUDA's, and GEQ goes in circles") {
  struct Case {
    std::uint64_t there, value;
    unsigned flags;
    bool holds;
  };
  for (const Case& one :
       {Case{3, 4, CU_STREAM_WAIT_VALUE_GEQ, false}, Case{4, 4, CU_STREAM_WAIT_VALUE_GEQ, true},
        Case{1, ~std::uint64_t{0}, CU_STREAM_WAIT_VALUE_GEQ, true},
        Case{~std::uint64_t{0}, 1, CU_STREAM_WAIT_VALUE_GEQ, false},
        Case{5, 4, CU_STREAM_WAIT_VALUE_EQ, false}, Case{4, 4, CU_STREAM_WAIT_VALUE_EQ, true},
        Case{4, 3, CU_STREAM_WAIT_VALUE_AND, false}, Case{6, 3, CU_STREAM_WAIT_VALUE_AND, true},
        Case{~std::uint64_t{0}, 0, CU_STREAM_WAIT_VALUE_NOR, false},
        Case{1, 2, CU_STREAM_WAIT_VALUE_NOR, true}}) {
    CAPTURE(one.there, one.value, one.flags);
    CHECK(RunEmulated({{"MAX_DELAY_US", "0"}}, [one](const Child& child) {
            child.UseDevice();
            const CUstream stream = child.NewStream();
            const CUdeviceptr memory = child.NewMemory(8);
            CHILD_OK(child.cuda().cuStreamWriteValue64(stream, memory, one.there, 0));
            CHILD_OK(child.cuda().cuStreamSynchronize(stream));
            CHILD_OK(child.cuda().cuStreamWaitValue64(stream, memory, one.value, one.flags));
            if (one.holds) {
              child.WaitUntil([&] { return child.IsDone(stream); }, "the condition");
            } else {
              std::this_thread::sleep_for(std::chrono::milliseconds(10));
              CHILD_CUDA(CUDA_ERROR_NOT_READY, child.cuda().cuStreamQuery(stream));
            }
          }) == "");
  }
}

CUstreamBatchMemOpParams InBatch(CUstreamBatchMemOpType operation, CUdeviceptr address,
                                 std::uint64_t value) {
  CUstreamBatchMemOpParams one{};
  one.operation = operation;
  one.waitValue.address = address;
  one.waitValue.value64 = value;
  return one;
}

TEST_CASE("Emulated streams: a batch of memory operations is done in order, and has 255 at most") {
  CHECK(RunEmulated({}, [](const Child& child) {
          child.UseDevice();
          const CUstream stream = child.NewStream();
          const CUdeviceptr memory = child.NewMemory(256 * 8);
          std::vector<CUstreamBatchMemOpParams> batch = {
              InBatch(CU_STREAM_MEM_OP_WRITE_VALUE_64, memory, 1),
              InBatch(CU_STREAM_MEM_OP_WAIT_VALUE_64, memory + 8, 5),
              InBatch(CU_STREAM_MEM_OP_WRITE_VALUE_64, memory + 16, 2)};
          CHILD_OK(child.cuda().cuStreamBatchMemOp(stream, 3, batch.data(), 0));
          child.WaitUntil([&] { return child.Read(memory) == 1; }, "what is before the wait");
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          CHILD_CHECK(child.Read(memory + 16) == 0);
          CHILD_OK(child.cuda().cuStreamWriteValue64(child.NewStream(), memory + 8, 6, 0));
          CHILD_OK(child.cuda().cuStreamSynchronize(stream));
          CHILD_CHECK(child.Read(memory + 16) == 2);
          batch.assign(256, InBatch(CU_STREAM_MEM_OP_WRITE_VALUE_64, memory, 3));
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE,
                     child.cuda().cuStreamBatchMemOp(stream, 256, batch.data(), 0));
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE,
                     child.cuda().cuStreamBatchMemOp(stream, 1, batch.data(), 1));
          CHILD_OK(child.cuda().cuStreamBatchMemOp(stream, 255, batch.data(), 0));
        }) == "");
}

TEST_CASE("Emulated streams: a value lies at a multiple of eight, in memory of the device") {
  CHECK(RunEmulated({}, [](const Child& child) {
          child.UseDevice();
          const CUstream stream = child.NewStream();
          const CUdeviceptr memory = child.NewMemory(64);
          std::uint64_t word = 0;
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE,
                     child.cuda().cuStreamWaitValue64(stream, memory + 4, 1, 0));
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE,
                     child.cuda().cuStreamWriteValue64(stream, memory + 64, 1, 0));
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE,
                     child.cuda().cuStreamWriteValue64(stream, reinterpret_cast<CUdeviceptr>(&word),
                                                       1, 0));
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE,
                     child.cuda().cuStreamWaitValue64(stream, memory, 1, 9));
        }) == "");
}

TEST_CASE("Emulated streams: without stream memory operations they are refused") {
  CHECK(RunEmulated({{"STREAM_MEMORY_OPERATIONS", "0"}}, [](const Child& child) {
          child.UseDevice();
          int can = 1;
          CHILD_OK(child.cuda().cuDeviceGetAttribute(
              &can, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 0));
          CHILD_CHECK(can == 0);
          const CUdeviceptr memory = child.NewMemory(8);
          CHILD_CUDA(CUDA_ERROR_NOT_SUPPORTED,
                     child.cuda().cuStreamWriteValue64(child.NewStream(), memory, 1, 0));
        }) == "");
}

TEST_CASE("Emulated streams: memory that goes while a stream waits for it is fatal") {
  CHECK(RunEmulated({}, [](const Child& child) {
          child.UseDevice();
          const CUstream stream = child.NewStream();
          CUmemGenericAllocationHandle handle = 0;
          const CUdeviceptr memory = child.MapMemory(2 << 20, &handle);
          CHILD_OK(child.cuda().cuStreamWaitValue64(stream, memory, 1, CU_STREAM_WAIT_VALUE_GEQ));
          CHILD_OK(child.cuda().cuMemUnmap(memory, 2 << 20));
          CHILD_CUDA(CUDA_ERROR_ILLEGAL_ADDRESS, child.cuda().cuStreamSynchronize(stream));
        }) == "");
}

TEST_CASE("Emulated streams: a destroyed one finishes its work and takes no more") {
  CHECK(RunEmulated({}, [](const Child& child) {
          child.UseDevice();
          const CUstream stream = child.NewStream();
          const CUdeviceptr memory = child.NewMemory(16);
          CHILD_OK(child.cuda().cuStreamWaitValue64(stream, memory, 1, CU_STREAM_WAIT_VALUE_GEQ));
          CHILD_OK(child.cuda().cuStreamWriteValue64(stream, memory + 8, 2, 0));
          CHILD_OK(child.cuda().cuStreamDestroy(stream));
          CHILD_CUDA(CUDA_ERROR_INVALID_HANDLE, child.cuda().cuStreamDestroy(stream));
          CHILD_CUDA(CUDA_ERROR_INVALID_HANDLE,
                     child.cuda().cuStreamWriteValue64(stream, memory, 1, 0));
          CHILD_OK(child.cuda().cuStreamWriteValue64(child.NewStream(), memory, 1, 0));
          child.WaitUntil([&] { return child.Read(memory + 8) == 2; }, "the destroyed stream");
        }) == "");
}

TEST_CASE("Emulated streams: the default stream waits for the blocking ones, and they for it") {
  CHECK(RunEmulated({{"MAX_DELAY_US", "0"}}, [](const Child& child) {
          child.UseDevice();
          CUstream blocking = nullptr;
          CHILD_OK(child.cuda().cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
          const CUstream apart = child.NewStream();
          const CUdeviceptr memory = child.NewMemory(64);
          CHILD_OK(child.cuda().cuStreamWaitValue64(blocking, memory, 1, CU_STREAM_WAIT_VALUE_GEQ));
          CHILD_OK(child.cuda().cuStreamWriteValue64(nullptr, memory + 8, 1, 0));
          CHILD_OK(child.cuda().cuStreamWriteValue64(apart, memory + 16, 1, 0));
          CHILD_OK(child.cuda().cuStreamSynchronize(apart));
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
          CHILD_CHECK(child.Read(memory + 8) == 0);
          CHILD_OK(child.cuda().cuStreamWaitValue64(CU_STREAM_LEGACY, memory, 2,
                                                    CU_STREAM_WAIT_VALUE_GEQ));
          CHILD_OK(child.cuda().cuStreamWriteValue64(apart, memory, 1, 0));
          child.WaitUntil([&] { return child.Read(memory + 8) == 1; }, "the default stream");
          CHILD_OK(child.cuda().cuStreamWriteValue64(blocking, memory + 24, 1, 0));
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
          CHILD_CHECK(child.Read(memory + 24) == 0);
          CHILD_OK(child.cuda().cuStreamWriteValue64(apart, memory, 2, 0));
          CHILD_OK(child.cuda().cuStreamSynchronize(blocking));
          CHILD_CHECK(child.Read(memory + 24) == 1);
        }) == "");
}

struct HostCall {
  const Child* child;
  CUdeviceptr memory;
  CUresult result;
};

TEST_CASE("Emulated streams: a host function must not call CUDA") {
  CHECK(RunEmulated({}, [](const Child& child) {
          child.UseDevice();
          const CUstream stream = child.NewStream();
          HostCall call{&child, child.NewMemory(8), CUDA_SUCCESS};
          const CUhostFn function = [](void* argument) {
            auto* const made = static_cast<HostCall*>(argument);
            made->result = made->child->cuda().cuMemFree(made->memory);
          };
          CHILD_OK(child.cuda().cuLaunchHostFunc(stream, function, &call));
          CHILD_OK(child.cuda().cuStreamSynchronize(stream));
          CHILD_CUDA(CUDA_ERROR_NOT_PERMITTED, call.result);
        }) == "");
}

std::atomic<int> g_asked{0};
std::atomic<int> g_stopped{0};

int DoneAtTheThird(void*, int stopping) {
  if (stopping != 0) return ++g_stopped;
  return ++g_asked < 3 ? 50 : 0;
}

int NeverDone(void*, int stopping) { return stopping != 0 ? ++g_stopped : 50; }

TEST_CASE("Emulated streams: foreign work holds its stream, and is stopped once") {
  CHECK(RunEmulated({}, [](const Child& child) {
          child.UseDevice();
          const CUstream stream = child.NewStream();
          const CUdeviceptr memory = child.NewMemory(8);
          CHILD_CHECK(child.emulator().enqueue(stream, DoneAtTheThird, nullptr) == 0);
          CHILD_OK(child.cuda().cuStreamWriteValue64(stream, memory, 1, 0));
          CHILD_OK(child.cuda().cuStreamSynchronize(stream));
          CHILD_CHECK(g_asked == 3 && g_stopped == 0 && child.Read(memory) == 1);
          CHILD_CHECK(child.emulator().enqueue(stream, NeverDone, nullptr) == 0);
          CHILD_CHECK(child.emulator().enqueue(stream, NeverDone, nullptr) == 0);
          CHILD_CHECK(child.emulator().stream_device(stream) == 0);
          child.emulator().fail_device(0, CUDA_ERROR_LAUNCH_FAILED);
          child.WaitUntil([] { return g_stopped == 2; }, "both to be stopped");
          CHILD_CHECK(child.emulator().enqueue(stream, NeverDone, nullptr) ==
                      CUDA_ERROR_LAUNCH_FAILED);
        }) == "");
}

}  // namespace
}  // namespace ringd::emulator
