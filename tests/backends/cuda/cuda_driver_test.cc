#include "backends/cuda/cuda_driver.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "tests/gpu/emulator/cuda/emulated_process.h"

namespace ringd {
namespace {

using Catch::Contains;

const std::string kFolder = "tests/gpu/emulator/cuda/";

// The message of an Open in a process of its own, which the emulator's settings need; "ok" with the
// version if it succeeded.
std::string OpenApart(const std::string& file, const char* setting = nullptr,
                      const char* value = "") {
  int report[2];
  REQUIRE(::pipe(report) == 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (setting != nullptr) ::setenv(setting, value, 1);
    const auto driver = CudaDriver::Open(file);
    int count = 0;
    const bool works = driver.ok() && (*driver)->cuInit(0) == CUDA_SUCCESS &&
                       (*driver)->cuDeviceGetCount(&count) == CUDA_SUCCESS && count == 1;
    const std::string text = works         ? "ok " + CudaVersionText((*driver)->version)
                             : driver.ok() ? "opened, but useless"
                                           : driver.status().ToString();
    ::_exit(::write(report[1], text.data(), text.size()) > 0 ? 0 : 1);
  }
  ::close(report[1]);
  ::waitpid(pid, nullptr, 0);
  char text[1000];
  const ssize_t length = ::read(report[0], text, sizeof text);
  ::close(report[0]);
  return std::string(text, length > 0 ? static_cast<std::size_t>(length) : 0);
}

TEST_CASE("CudaDriver: opens a driver with cuGetProcAddress, and an older one without") {
  CHECK(OpenApart(kFolder + "libcuda.so.1") == "ok 13.0");
  CHECK(OpenApart(kFolder + "libcuda_11_7.so", "RINGD_EMULATOR_CUDA_DRIVER_VERSION", "11070") ==
        "ok 11.7");
}

TEST_CASE("CudaDriver: a library that is not there is kNotFound, with the loader's own text") {
  const std::string message = OpenApart("/no/such/libcuda.so.1");
  CHECK_THAT(message, Contains("NOT_FOUND") && Contains("/no/such/libcuda.so.1") &&
                          Contains("No such file or directory"));
}

TEST_CASE("CudaDriver: a library that is no driver is named") {
  CHECK_THAT(OpenApart("libm.so.6"), Contains("FAILED_PRECONDITION") && Contains("libm.so.6") &&
                                         Contains("cuDriverGetVersion"));
}

TEST_CASE("CudaDriver: a driver that is too old is named, with what is needed") {
  CHECK_THAT(OpenApart(kFolder + "libcuda.so.1", "RINGD_EMULATOR_CUDA_DRIVER_VERSION", "11060"),
             Contains("FAILED_PRECONDITION") && Contains("libcuda.so.1") && Contains("11.6") &&
                 Contains("11.7"));
}

TEST_CASE("CudaDriver: a function that is missing is named, in either kind of driver") {
  CHECK_THAT(
      OpenApart(kFolder + "libcuda.so.1", "RINGD_EMULATOR_CUDA_WITHOUT", "cuLaunchKernel"),
      Contains("FAILED_PRECONDITION") && Contains("libcuda.so.1 has no function cuLaunchKernel"));
  CHECK_THAT(OpenApart(kFolder + "libcuda_incomplete.so"),
             Contains("FAILED_PRECONDITION") &&
                 Contains("libcuda_incomplete.so has no function cuLaunchHostFunc"));
}

TEST_CASE("CudaStatus: keeps CUDA's name and text, and says what can be done") {
  CHECK(emulator::RunEmulated({}, [](const emulator::Child& child) {
          const auto status = [&](CUresult result) {
            return CudaStatus(child.cuda(), "cuThing", result);
          };
          CHILD_CHECK(status(CUDA_SUCCESS).ok());
          CHILD_CHECK(status(CUDA_ERROR_OUT_OF_MEMORY).ToString() ==
                      "RESOURCE_EXHAUSTED: cuThing: CUDA_ERROR_OUT_OF_MEMORY, out of memory");
          CHILD_CHECK(absl::IsUnavailable(status(CUDA_ERROR_NOT_READY)));
          for (const CUresult passing :
               {CUDA_ERROR_MPS_CONNECTION_FAILED, CUDA_ERROR_MPS_RPC_FAILURE,
                CUDA_ERROR_MPS_SERVER_NOT_READY, CUDA_ERROR_MPS_MAX_CLIENTS_REACHED,
                CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED}) {
            CHILD_CHECK(absl::IsUnavailable(status(passing)));
          }
          for (const CUresult too_old : {CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_NO_BINARY_FOR_GPU,
                                         CUDA_ERROR_UNSUPPORTED_PTX_VERSION}) {
            CHILD_CHECK(absl::IsFailedPrecondition(status(too_old)));
          }
          CHILD_CHECK(absl::IsFailedPrecondition(status(CUDA_ERROR_NO_DEVICE)));
          CHILD_CHECK(absl::IsAborted(status(CUDA_ERROR_ILLEGAL_ADDRESS)));
          CHILD_CHECK(absl::IsInternal(status(CUDA_ERROR_INVALID_VALUE)));
          // A code that the driver doesn't know.
          CHILD_CHECK(status(static_cast<CUresult>(1001)).ToString() ==
                      "INTERNAL: cuThing: CUDA error 1001");
        }) == "");
  CHECK(IsFatal(CUDA_ERROR_LAUNCH_FAILED));
  CHECK_FALSE(IsFatal(CUDA_ERROR_INVALID_VALUE));
}

// A call through each kind of pointer would prove little; a wrong variant would take its arguments
// for others.
TEST_CASE("CudaDriver: the variants are those that the table names") {
  CHECK(emulator::RunEmulated({{"MIG", "1"}}, [](const emulator::Child& child) {
          child.UseDevice();
          CUuuid uuid{};
          CHILD_OK(child.cuda().cuDeviceGetUuid(&uuid, 0));
          CHILD_CHECK(uuid.bytes[14] == 1);  // the instance's: the first variant gives the GPU's
          std::size_t bytes = 0;
          CHILD_OK(child.cuda().cuDeviceTotalMem(&bytes, 0));
          CHILD_CHECK(bytes == std::size_t{1} << 30);
        }) == "");
}

}  // namespace
}  // namespace ringd
