// Rules about initialisation, contexts and devices. README.md names the documents.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <thread>

#include "tests/gpu/emulator/cuda/emulated_process.h"

namespace ringd::emulator {
namespace {

TEST_CASE("Emulated contexts: nothing works before cuInit") {
  CHECK(RunEmulated({}, [](const Child& child) {
          int count = 0;
          CHILD_CUDA(CUDA_ERROR_NOT_INITIALIZED, child.cuda().cuDeviceGetCount(&count));
          CHILD_OK(child.cuda().cuInit(0));
          CHILD_OK(child.cuda().cuDeviceGetCount(&count));
          CHILD_CHECK(count == 1);
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE, child.cuda().cuInit(1));
        }) == "");
}

TEST_CASE("Emulated contexts: a machine without GPUs says so in cuInit") {
  CHECK(RunEmulated({{"DEVICES", "0"}}, [](const Child& child) {
          CHILD_CUDA(CUDA_ERROR_NO_DEVICE, child.cuda().cuInit(0));
        }) == "");
}

TEST_CASE("Emulated contexts: a forked child can't use its parent's CUDA") {
  CHECK(RunEmulated({}, [](const Child& child) {
          child.UseDevice();
          const pid_t forked = ::fork();
          if (forked == 0) {
            const bool refused = child.cuda().cuInit(0) == CUDA_ERROR_NOT_INITIALIZED &&
                                 child.cuda().cuCtxSynchronize() == CUDA_ERROR_NOT_INITIALIZED;
            ::_exit(refused ? 7 : 1);
          }
          int status = 0;
          ::waitpid(forked, &status, 0);
          CHILD_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
        }) == "");
}

TEST_CASE("Emulated contexts: one is current on its thread alone") {
  CHECK(RunEmulated({}, [](const Child& child) {
          const CUcontext context = child.UseDevice();
          CUresult without = CUDA_SUCCESS;
          CUresult with = CUDA_ERROR_UNKNOWN;
          std::thread([&] {
            CUdeviceptr memory = 0;
            without = child.cuda().cuMemAlloc(&memory, 64);
            child.cuda().cuCtxSetCurrent(context);
            with = child.cuda().cuMemAlloc(&memory, 64);
          }).join();
          CHILD_CUDA(CUDA_ERROR_INVALID_CONTEXT, without);
          CHILD_OK(with);
        }) == "");
}

TEST_CASE("Emulated contexts: the last release ends the context, its streams and its memory") {
  CHECK(RunEmulated({}, [](const Child& child) {
          const CUcontext context = child.UseDevice();
          child.UseDevice();  // a second reference
          const CUdeviceptr memory = child.NewMemory(64);
          const CUstream stream = child.NewStream();
          CHILD_OK(child.cuda().cuDevicePrimaryCtxRelease(0));
          CHILD_OK(child.cuda().cuStreamQuery(stream));
          CHILD_OK(child.cuda().cuDevicePrimaryCtxRelease(0));
          CHILD_CUDA(CUDA_ERROR_CONTEXT_IS_DESTROYED, child.cuda().cuStreamQuery(stream));
          CHILD_CUDA(CUDA_ERROR_INVALID_CONTEXT, child.cuda().cuCtxSetCurrent(context));
          CHILD_CUDA(CUDA_ERROR_INVALID_CONTEXT, child.cuda().cuDevicePrimaryCtxRelease(0));
          CHILD_CHECK(child.emulator().alias(memory, 64) == nullptr);
          child.UseDevice();
          CHILD_CUDA(CUDA_ERROR_INVALID_HANDLE, child.cuda().cuStreamQuery(stream));
        }) == "");
}

TEST_CASE("Emulated devices: an ordinal that is not there is refused everywhere") {
  CHECK(RunEmulated({{"DEVICES", "2"}}, [](const Child& child) {
          child.UseDevice();
          CUdevice device = 0;
          CUcontext context = nullptr;
          std::size_t bytes = 0;
          CUuuid uuid{};
          CHILD_OK(child.cuda().cuDeviceGet(&device, 1));
          CHILD_CUDA(CUDA_ERROR_INVALID_DEVICE, child.cuda().cuDeviceGet(&device, 2));
          CHILD_CUDA(CUDA_ERROR_INVALID_DEVICE, child.cuda().cuDeviceGet(&device, -1));
          CHILD_CUDA(CUDA_ERROR_INVALID_DEVICE, child.cuda().cuDevicePrimaryCtxRetain(&context, 2));
          CHILD_CUDA(CUDA_ERROR_INVALID_DEVICE, child.cuda().cuDeviceTotalMem(&bytes, 2));
          CHILD_CUDA(CUDA_ERROR_INVALID_DEVICE, child.cuda().cuDeviceGetUuid(&uuid, 2));
        }) == "");
}

TEST_CASE("Emulated devices: another GPU's memory needs peer access, once") {
  CHECK(RunEmulated({{"DEVICES", "2"}}, [](const Child& child) {
          const CUcontext first = child.UseDevice(0);
          const CUdeviceptr memory = child.NewMemory(64);
          const CUcontext second = child.UseDevice(1);
          const CUstream stream = child.NewStream();
          // The other GPU's: a stream of this one can't wait in it.
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE,
                     child.cuda().cuStreamWriteValue64(stream, memory, 7, 0));
          CHILD_CUDA(CUDA_ERROR_INVALID_CONTEXT, child.cuda().cuCtxEnablePeerAccess(second, 0));
          CHILD_OK(child.cuda().cuCtxEnablePeerAccess(first, 0));
          CHILD_CUDA(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
                     child.cuda().cuCtxEnablePeerAccess(first, 0));
          CHILD_OK(child.cuda().cuStreamWriteValue64(stream, memory, 7, 0));
          CHILD_OK(child.cuda().cuStreamSynchronize(stream));
          CHILD_CHECK(child.Read(memory) == 7);
        }) == "");
}

TEST_CASE("Emulated devices: without peer access it can't be enabled") {
  CHECK(RunEmulated({{"DEVICES", "2"}, {"PEER_ACCESS", "0"}}, [](const Child& child) {
          const CUcontext first = child.UseDevice(0);
          child.UseDevice(1);
          int can = 1;
          CHILD_OK(child.cuda().cuDeviceCanAccessPeer(&can, 1, 0));
          CHILD_CHECK(can == 0);
          CHILD_CUDA(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
                     child.cuda().cuCtxEnablePeerAccess(first, 0));
        }) == "");
}

TEST_CASE("Emulated driver: a setting that makes no sense ends the process") {
  CHECK(RunEmulated({{"DEVICES", "many"}}, [](const Child&) {}) == "killed by signal 6");
}

}  // namespace
}  // namespace ringd::emulator
