#include "daemon/lanes/device/session_slab.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>

#include "backends/device/device_thread.h"

namespace ringd {

TEST_CASE("SessionSlab: tensors lie behind the timeline, and before the end") {
  DeviceThreadOptions options;
  options.cuda_library = options.nccl_library = "/no/such/library";
  const SessionSlab slab(std::make_shared<DeviceThread>(options), DeviceSlabId(1),
                         kTimelineBytes + 4096, "GPU-a");
  CHECK(slab.Holds(kTimelineBytes, 4096));
  CHECK(slab.Holds(kTimelineBytes + 4096, 0));
  CHECK_FALSE(slab.Holds(kTimelineBytes - 1, 1));
  CHECK_FALSE(slab.Holds(kTimelineBytes, 4097));
  CHECK_FALSE(slab.Holds(kTimelineBytes + 4095, 2));
  // Sums that wrap.
  CHECK_FALSE(slab.Holds(UINT64_MAX, 2));
  CHECK_FALSE(slab.Holds(kTimelineBytes, UINT64_MAX));
}

}  // namespace ringd
