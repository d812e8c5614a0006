// Rules about modules, kernels, and errors that stay. README.md names the documents.
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <string>
#include <thread>

#include "tests/gpu/emulator/cuda/emulated_process.h"

namespace ringd::emulator {
namespace {

TEST_CASE("Emulated kernels: the body runs with the parameters of the launch") {
  CHECK(RunEmulated({}, [](const Child& child) {
          child.UseDevice();
          const CUstream stream = child.NewStream();
          CUdeviceptr memory = child.NewMemory(64);
          std::uint64_t value = 9;
          std::uint64_t count = 8;
          void* parameters[] = {&memory, &value, &count};
          CHILD_OK(child.cuda().cuLaunchKernel(child.LoadKernel("fill"), 1, 1, 1, 32, 1, 1, 0,
                                               stream, parameters, nullptr));
          value = 10;  // too late to matter
          CHILD_OK(child.cuda().cuStreamSynchronize(stream));
          CHILD_CHECK(child.Read(memory + 56) == 9);
        }) == "");
}

TEST_CASE("Emulated kernels: an image is one, and has the names that are asked for") {
  CHECK(RunEmulated({}, [](const Child& child) {
          child.UseDevice();
          CUmodule module = nullptr;
          CUfunction function = nullptr;
          CHILD_CUDA(CUDA_ERROR_INVALID_IMAGE,
                     child.cuda().cuModuleLoadData(&module, "no image at all"));
          CHILD_OK(child.cuda().cuModuleLoadData(
              &module, ".version 8.0\n.visible .entry fill() .visible .entry unknown()"));
          CHILD_OK(child.cuda().cuModuleGetFunction(&function, module, "fill"));
          // In the library of bodies but not in the image, and the other way round.
          CHILD_CUDA(CUDA_ERROR_NOT_FOUND,
                     child.cuda().cuModuleGetFunction(&function, module, "count_running"));
          CHILD_CUDA(CUDA_ERROR_NOT_FOUND,
                     child.cuda().cuModuleGetFunction(&function, module, "unknown"));
          CHILD_OK(child.cuda().cuModuleUnload(module));
          CHILD_CUDA(CUDA_ERROR_INVALID_HANDLE,
                     child.cuda().cuModuleGetFunction(&function, module, "fill"));
        }) == "");
}

TEST_CASE(
    "Emulated kernels: loading one lazily waits for all streams, and holds up other threads") {
  CHECK(RunEmulated({{"LAZY_LOADING", "1"}}, [](const Child& child) {
          child.UseDevice();
          const CUstream stream = child.NewStream();
          const CUstream opener = child.NewStream();
          const CUdeviceptr gate = child.NewMemory(8);
          CHILD_OK(child.cuda().cuStreamWriteValue64(stream, gate, 0, 0));
          CHILD_OK(child.cuda().cuStreamSynchronize(stream));
          CUcontext context = nullptr;
          CHILD_OK(child.cuda().cuCtxGetCurrent(&context));
          CUmodule module = nullptr;
          CHILD_OK(child.cuda().cuModuleLoadData(&module, ".version 8.0\n.visible .entry fill()"));
          CHILD_OK(child.cuda().cuStreamWaitValue64(stream, gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
          // They wait for ever, and end with the process.
          static std::atomic<bool> loaded{false};
          static std::atomic<bool> opened{false};
          std::thread([&child, context, module] {
            child.cuda().cuCtxSetCurrent(context);
            CUfunction function = nullptr;
            child.cuda().cuModuleGetFunction(&function, module, "fill");
            loaded = true;
          }).detach();
          ::usleep(300'000);  // it has begun to load by then
          std::thread([&child, context, opener, gate] {
            child.cuda().cuCtxSetCurrent(context);
            child.cuda().cuStreamWriteValue64(opener, gate, 1, 0);
            opened = true;
          }).detach();
          ::usleep(300'000);
          CHILD_CHECK(!loaded);
          CHILD_CHECK(!opened);
        }) == "");
}

TEST_CASE("Emulated kernels: a launch is refused on another device's stream, or too large") {
  CHECK(RunEmulated({{"DEVICES", "2"}}, [](const Child& child) {
          child.UseDevice(1);
          const CUstream elsewhere = child.NewStream();
          child.UseDevice(0);
          const CUstream stream = child.NewStream();
          const CUfunction function = child.LoadKernel("fail_assertion");
          const auto launch = [&](CUstream on, unsigned blocks, unsigned threads) {
            return child.cuda().cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, on,
                                               nullptr, nullptr);
          };
          CHILD_CUDA(CUDA_ERROR_INVALID_HANDLE, launch(elsewhere, 1, 1));
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE, launch(stream, 0, 1));
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE, launch(stream, 1, 1025));
          CHILD_OK(child.cuda().cuCtxSynchronize());
        }) == "");
}

TEST_CASE("Emulated kernels: freed memory is found out when the kernel runs, and is fatal") {
  CHECK(RunEmulated({}, [](const Child& child) {
          child.UseDevice();
          const CUstream stream = child.NewStream();
          CUdeviceptr memory = child.NewMemory(64);
          CHILD_OK(child.cuda().cuMemFree(memory));
          std::uint64_t one = 1;
          void* parameters[] = {&memory, &one, &one};
          CHILD_OK(child.cuda().cuLaunchKernel(child.LoadKernel("fill"), 1, 1, 1, 1, 1, 1, 0,
                                               stream, parameters, nullptr));
          CHILD_CUDA(CUDA_ERROR_ILLEGAL_ADDRESS, child.cuda().cuStreamSynchronize(stream));
        }) == "");
}

TEST_CASE("Emulated errors: a fatal one is every later call's, until the process ends") {
  CHECK(RunEmulated({{"DEVICES", "2"}}, [](const Child& child) {
          child.UseDevice(0);
          const CUstream stream = child.NewStream();
          const CUstream other = child.NewStream();
          const CUdeviceptr gate = child.NewMemory(8);
          bool was_called = false;
          CHILD_OK(child.cuda().cuStreamWaitValue64(other, gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
          CHILD_OK(child.cuda().cuLaunchHostFunc(
              other, [](void* called) { *static_cast<bool*>(called) = true; }, &was_called));
          CHILD_OK(child.cuda().cuLaunchKernel(child.LoadKernel("fail_assertion"), 1, 1, 1, 1, 1, 1,
                                               0, stream, nullptr, nullptr));
          CHILD_CUDA(CUDA_ERROR_ASSERT, child.cuda().cuStreamSynchronize(stream));
          CUdeviceptr memory = 0;
          int count = 0;
          CUcontext context = nullptr;
          CHILD_CUDA(CUDA_ERROR_ASSERT, child.cuda().cuMemAlloc(&memory, 64));
          CHILD_CUDA(CUDA_ERROR_ASSERT, child.cuda().cuStreamSynchronize(other));
          CHILD_CUDA(CUDA_ERROR_ASSERT, child.cuda().cuDeviceGetCount(&count));
          CHILD_CUDA(CUDA_ERROR_ASSERT, child.cuda().cuDevicePrimaryCtxRelease(0));
          CHILD_CUDA(CUDA_ERROR_ASSERT, child.cuda().cuDevicePrimaryCtxRetain(&context, 1));
          CHILD_CHECK(!was_called);
        }) == "");
}

}  // namespace
}  // namespace ringd::emulator
