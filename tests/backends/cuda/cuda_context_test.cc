#include "backends/cuda/cuda_context.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "backends/cuda/cuda_stream.h"
#include "tests/backends/cuda/opened_gpu.h"

namespace ringd {
namespace {

using emulator::Child;
using emulator::RunEmulated;

TEST_CASE("CudaContext: a GPU is found by its UUID, whatever its ordinal") {
  CHECK(RunEmulated({{"DEVICES", "3"}}, [](const Child& child) {
          const auto by_ordinal = OpenGpu(child, 2);
          const auto driver = CHILD_VALUE(OpenCudaDriver(emulator::kLibrary));
          const auto by_uuid = CHILD_VALUE(CudaContext::OpenByUuid(driver, by_ordinal->uuid()));
          CHILD_CHECK(by_uuid->ordinal() == 2);
          CHILD_CHECK(by_uuid->uuid() == by_ordinal->uuid());
          CHILD_CHECK(by_uuid->multiprocessors() == 132);
          CHILD_CHECK(by_uuid->has_stream_memory_operations());
        }) == "");
}

TEST_CASE("CudaContext: a GPU that is not there is named, with those that are") {
  CHECK(RunEmulated({}, [](const Child& child) {
          const auto driver = CHILD_VALUE(OpenCudaDriver(emulator::kLibrary));
          const std::string there = OpenGpu(child)->uuid();
          CHILD_REFUSED(absl::StatusCode::kNotFound, there,
                        CudaContext::OpenByUuid(driver, "GPU-00").status());
          CHILD_REFUSED(absl::StatusCode::kNotFound, "it has 1",
                        CudaContext::Open(driver, 1).status());
        }) == "");
  CHECK(RunEmulated({{"DEVICES", "0"}}, [](const Child& child) {
          CHILD_REFUSED(absl::StatusCode::kFailedPrecondition, "cuInit",
                        OpenCudaDriver(emulator::kLibrary).status());
        }) == "");
}

TEST_CASE("CudaContext: the context goes with the last that shares it") {
  CHECK(RunEmulated({}, [](const Child& child) {
          auto context = OpenGpu(child);
          {
            const CudaStream stream = CHILD_VALUE(CudaStream::Create(context));
            context.reset();
            CHILD_STATUS(stream.WaitIdle(Clock::now() + std::chrono::seconds(10)));
          }
          // It was the last: there is nothing to release any more.
          CHILD_CUDA(CUDA_ERROR_INVALID_CONTEXT, child.cuda().cuDevicePrimaryCtxRelease(0));
        }) == "");
}

TEST_CASE("ScopedContext: the caller's context is current again afterwards") {
  CHECK(RunEmulated({{"DEVICES", "2"}}, [](const Child& child) {
          const CUcontext mine = child.UseDevice(1);
          const auto context = OpenGpu(child, 0);
          CUcontext current = nullptr;
          {
            const ScopedContext scope(*context);
            CHILD_STATUS(scope.status());
            CHILD_OK(child.cuda().cuCtxGetCurrent(&current));
            CHILD_CHECK(current == context->handle());
          }
          CHILD_OK(child.cuda().cuCtxGetCurrent(&current));
          CHILD_CHECK(current == mine);
        }) == "");
}

TEST_CASE("CudaContext: a stream of another GPU, or none, is told apart from one that captures") {
  CHECK(RunEmulated({}, [](const Child& child) {
          const auto context = OpenGpu(child);
          const CudaStream stream = CHILD_VALUE(CudaStream::Create(context));
          CHILD_STATUS(context->CheckNotCapturing(stream.handle()));
          int nothing = 0;
          CHILD_CHECK(!context->CheckNotCapturing(&nothing).ok());
        }) == "");
}

TEST_CASE("CudaContext: a thread that ignores captures does so alone") {
  CHECK(RunEmulated({}, [](const Child& child) {
          const auto context = OpenGpu(child);
          const auto former = [&] {
            CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
            CHILD_OK(child.cuda().cuThreadExchangeStreamCaptureMode(&mode));
            return mode;
          };
          context->IgnoreCaptures();
          CHILD_CHECK(former() == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
          std::thread([&] { CHILD_CHECK(former() == CU_STREAM_CAPTURE_MODE_GLOBAL); }).join();
        }) == "");
}

TEST_CASE("SetCudaEnvironment: fewer connections under MPS, and what the user has set stays") {
  const auto connections = [] { return std::string(::getenv("CUDA_DEVICE_MAX_CONNECTIONS")); };
  ::unsetenv("CUDA_MPS_PIPE_DIRECTORY");
  ::unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
  SetCudaEnvironment();
  CHECK(connections() == "32");
  ::unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
  ::setenv("CUDA_MPS_PIPE_DIRECTORY", "/run/nvidia-mps", 1);
  SetCudaEnvironment();
  CHECK(connections() == "8");
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "16", 1);
  SetCudaEnvironment();
  CHECK(connections() == "16");
  ::unsetenv("CUDA_MPS_PIPE_DIRECTORY");
  ::unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
}

}  // namespace
}  // namespace ringd
