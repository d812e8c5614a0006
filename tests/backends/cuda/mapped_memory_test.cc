#include "backends/cuda/mapped_memory.h"

#include <catch2/catch.hpp>
#include <cstddef>
#include <limits>
#include <utility>

#include "tests/backends/cuda/opened_gpu.h"

namespace ringd {
namespace {

using emulator::Child;
using emulator::RunEmulated;

constexpr std::size_t kGranule = std::size_t{2} << 20;

TEST_CASE("MappedMemory: whole granules, which come back, also when they were moved") {
  CHECK(RunEmulated({{"MEMORY_MIB", "8"}}, [](const Child& child) {
          const auto context = OpenGpu(child);
          for (int i = 0; i < 10; ++i) {
            MappedMemory first = CHILD_VALUE(MappedMemory::Create(context, kGranule + 1));
            CHILD_CHECK(first.bytes() == 2 * kGranule);
            MappedMemory second;
            second = std::move(first);
            CHILD_CHECK(child.emulator().alias(second.address(), 2 * kGranule) != nullptr);
            const DeviceAddress address = second.address();
            second = MappedMemory();
            CHILD_CHECK(child.emulator().alias(address, 8) == nullptr);
          }
        }) == "");
}

TEST_CASE("MappedMemory: nothing for no bytes, and a refusal with GPU and amount for too many") {
  CHECK(RunEmulated({{"MEMORY_MIB", "8"}}, [](const Child& child) {
          const auto context = OpenGpu(child);
          CHILD_CHECK(CHILD_VALUE(MappedMemory::Create(context, 0)).address() == 0);
          constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;
          CHILD_REFUSED(kExhausted, context->uuid(),
                        MappedMemory::Create(context, 5 * kGranule).status());
          constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
          CHILD_REFUSED(kExhausted, "bytes", MappedMemory::Create(context, kMost).status());
          CHILD_CHECK(CHILD_VALUE(MappedMemory::Create(context, 8)).bytes() == kGranule);
        }) == "");
}

}  // namespace
}  // namespace ringd
