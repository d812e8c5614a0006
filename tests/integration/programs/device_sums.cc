// One rank with a GPU, in C++: sums and a broadcast in the order of a stream, by ringd.hpp alone.
// The driver's functions that it needs itself are those of RINGD_CUDA_LIBRARY.
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "client/ringd.hpp"

namespace {

void Require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

// A stream on a GPU whose primary context is current, and copies on it.
class Driver {
 public:
  explicit Driver(std::int32_t ordinal) {
    const char* const file = std::getenv("RINGD_CUDA_LIBRARY");
    library_ = ::dlopen(file == nullptr ? "libcuda.so.1" : file, RTLD_NOW);
    Require(library_ != nullptr, "there is no CUDA driver");
    int device = 0;
    void* context = nullptr;
    Call("cuInit", 0U);
    Call("cuDeviceGet", &device, static_cast<int>(ordinal));
    Call("cuDevicePrimaryCtxRetain", &context, device);
    Call("cuCtxSetCurrent", context);
    Call("cuStreamCreate", &stream_, 1U);  // one that does not wait for the default stream
  }

  void* stream() const { return stream_; }

  void Write(float* to, const std::vector<float>& from) {
    Call("cuMemcpyHtoDAsync_v2", reinterpret_cast<std::uintptr_t>(to),
         static_cast<const void*>(from.data()), from.size() * sizeof(float), stream_);
  }
  // What is there when the stream has come so far.
  std::vector<float> Read(const float* from, std::size_t count) {
    std::vector<float> to(count);
    Call("cuMemcpyDtoHAsync_v2", static_cast<void*>(to.data()),
         reinterpret_cast<std::uintptr_t>(from), count * sizeof(float), stream_);
    Call("cuStreamSynchronize", stream_);
    return to;
  }
  float* Allocate(std::size_t count) {
    std::uintptr_t address = 0;
    Call("cuMemAlloc_v2", &address, count * sizeof(float));
    return reinterpret_cast<float*>(address);
  }

 private:
  template <typename... Arguments>
  void Call(const char* name, Arguments... arguments) {
    using Function = int (*)(Arguments...);
    const auto function = reinterpret_cast<Function>(::dlsym(library_, name));
    Require(function != nullptr, std::string("the driver has no ") + name);
    const int result = function(arguments...);
    Require(result == 0, std::string(name) + " has failed: " + std::to_string(result));
  }

  void* library_ = nullptr;
  void* stream_ = nullptr;
};

void Run() {
  constexpr std::size_t kCount = 1000;
  ringd::Context context;
  const ringd_place place = context.place();
  const auto rank = static_cast<float>(place.rank);
  const auto size = static_cast<float>(place.size);
  Driver driver(place.local_rank);

  try {
    context.AllocateOnDevice<float>(1);
    Require(false, "device memory without a GPU");
  } catch (const ringd::Error& error) {
    Require(error.code() == RINGD_FAILED_PRECONDITION, error.what());
  }
  context.OpenDevice(place.local_rank, 1 << 20);
  {
    // Twice what the slab has: each buffer gives its memory back.
    for (int i = 0; i < 8; ++i) {
      ringd::DeviceBuffer<float> large = context.AllocateOnDevice<float>(1 << 16);
      ringd::DeviceBuffer<float> moved = std::move(large);
      Require(moved.data() != nullptr && moved.size() == 1 << 16, "a buffer moves");
    }
  }

  const ringd::DeviceBuffer<float> gradient = context.AllocateOnDevice<float>(kCount);
  const ringd::Registration sum = context.Register(
      ringd::OnDevice(ringd::AllReduce<float>("gradient", {static_cast<std::int64_t>(kCount)})));
  for (int step = 0; step < 3; ++step) {
    driver.Write(gradient.data(), std::vector<float>(kCount, rank + 1));
    ringd::Operation operation = context.SubmitOnStream(sum, gradient, driver.stream());
    operation.OrderOn(driver.stream());
    // Before the host has waited: the stream does.
    const std::vector<float> expected(kCount, size * (size + 1) / 2);
    Require(driver.Read(gradient.data(), kCount) == expected, "the sum is wrong");
    Require(operation.pending(), "ordering a stream must not consume the operation");
    operation.Wait();
    operation.OrderOn(driver.stream());  // one that has been waited for orders nothing
  }

  // From and to memory of the program's own.
  float* const own = driver.Allocate(kCount);
  const ringd::Registration weights = context.Register(ringd::OnDevice(
      ringd::Broadcast<float>("weights", {static_cast<std::int64_t>(kCount)}, place.size - 1)));
  driver.Write(own, std::vector<float>(kCount, rank));
  context.SubmitOnStreamRaw(weights, own, own, driver.stream()).Wait();
  Require(driver.Read(own, kCount) == std::vector<float>(kCount, size - 1),
          "the broadcast is wrong");

  // A tensor of the host goes the other way.
  try {
    context.SubmitRaw(sum, gradient.data(), gradient.data());
    Require(false, "a tensor on a GPU was submitted as one of the host");
  } catch (const ringd::Error& error) {
    Require(error.code() == RINGD_INVALID_ARGUMENT, error.what());
  }
}

}  // namespace

int main() {
  try {
    Run();
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  std::cout << "sums are right\n";
  return 0;
}
