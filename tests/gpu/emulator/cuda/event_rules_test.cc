// Rules about events. README.md names the documents.
#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <thread>

#include "tests/gpu/emulator/cuda/emulated_process.h"

namespace ringd::emulator {
namespace {

TEST_CASE("Emulated events: one that was never recorded is over, a recorded one waits") {
  CHECK(RunEmulated({}, [](const Child& child) {
          child.UseDevice();
          const CUstream stream = child.NewStream();
          const CUdeviceptr gate = child.NewMemory(8);
          CUevent event = nullptr;
          CHILD_OK(child.cuda().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
          CHILD_OK(child.cuda().cuEventQuery(event));
          CHILD_OK(child.cuda().cuEventSynchronize(event));
          CHILD_OK(child.cuda().cuStreamWaitValue64(stream, gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
          CHILD_OK(child.cuda().cuEventRecord(event, stream));
          CHILD_CUDA(CUDA_ERROR_NOT_READY, child.cuda().cuEventQuery(event));
          CHILD_OK(child.cuda().cuStreamWriteValue64(child.NewStream(), gate, 1, 0));
          CHILD_OK(child.cuda().cuEventSynchronize(event));
          CHILD_OK(child.cuda().cuEventQuery(event));
        }) == "");
}

TEST_CASE("Emulated events: a wait is for the last record before it, not for later ones") {
  CHECK(RunEmulated({}, [](const Child& child) {
          child.UseDevice();
          const CUstream recording = child.NewStream();
          const CUstream waiting = child.NewStream();
          const CUdeviceptr gate = child.NewMemory(8);
          CUevent event = nullptr;
          CHILD_OK(child.cuda().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
          CHILD_OK(child.cuda().cuEventRecord(event, recording));
          CHILD_OK(child.cuda().cuStreamWaitEvent(waiting, event, 0));
          CHILD_OK(child.cuda().cuStreamWaitValue64(recording, gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
          CHILD_OK(child.cuda().cuEventRecord(event, recording));
          CHILD_OK(child.cuda().cuStreamSynchronize(waiting));
          CHILD_OK(child.cuda().cuStreamWaitEvent(waiting, event, 0));
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
          CHILD_CUDA(CUDA_ERROR_NOT_READY, child.cuda().cuStreamQuery(waiting));
          CHILD_OK(child.cuda().cuStreamWriteValue64(child.NewStream(), gate, 1, 0));
          CHILD_OK(child.cuda().cuStreamSynchronize(waiting));
        }) == "");
}

TEST_CASE("Emulated events: recorded on a stream of their own context only") {
  CHECK(RunEmulated({{"DEVICES", "2"}}, [](const Child& child) {
          child.UseDevice(0);
          CUevent event = nullptr;
          CHILD_OK(child.cuda().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
          child.UseDevice(1);
          const CUstream stream = child.NewStream();
          CHILD_CUDA(CUDA_ERROR_INVALID_HANDLE, child.cuda().cuEventRecord(event, stream));
          CHILD_OK(child.cuda().cuStreamWaitEvent(stream, event, 0));
          CHILD_OK(child.cuda().cuEventDestroy(event));
          CHILD_CUDA(CUDA_ERROR_INVALID_HANDLE, child.cuda().cuEventQuery(event));
        }) == "");
}

TEST_CASE("Emulated events: only interprocess ones leave the process, and they have no times") {
  CHECK(RunEmulated({}, [](const Child& child) {
          child.UseDevice();
          CUevent event = nullptr;
          CUipcEventHandle handle{};
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE,
                     child.cuda().cuEventCreate(&event, CU_EVENT_INTERPROCESS));
          CHILD_OK(child.cuda().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
          CHILD_CUDA(CUDA_ERROR_INVALID_HANDLE, child.cuda().cuIpcGetEventHandle(&handle, event));
          CHILD_CUDA(CUDA_ERROR_INVALID_HANDLE,
                     child.cuda().cuIpcOpenEventHandle(&event, CUipcEventHandle{}));
        }) == "");
}

}  // namespace
}  // namespace ringd::emulator
