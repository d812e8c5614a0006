// What a bucket needs on its GPU: what is packed, reduced and unpacked, and where.
#ifndef RINGD_BACKENDS_DEVICE_BUCKET_PLAN_H_
#define RINGD_BACKENDS_DEVICE_BUCKET_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "backends/cuda/cuda_context.h"
#include "backends/cuda/kernels/move_plan.h"
#include "backends/device/device_bucket.h"

namespace ringd {

struct BucketPlan {
  MovePlan pack;    // empty: the tensors are sent from where they are
  MovePlan unpack;  // empty: the results are received where they belong
  DeviceAddress send = 0;
  DeviceAddress receive = 0;
  std::uint64_t count = 0;       // of elements; 0: there is nothing to reduce
  ReduceOp op = ReduceOp::kSum;  // what NCCL is told
};

// Where a slab lies in this process.
struct SlabRange {
  DeviceAddress address = 0;
  std::size_t bytes = 0;
};

// Where buckets of several tensors are packed.
struct FusionBuffer {
  DeviceAddress address = 0;
  std::size_t bytes = 0;
  std::string setting;  // that says how large it is
};

// Nothing for a slab that is not there.
using FindSlab = absl::FunctionRef<std::optional<SlabRange>(DeviceSlabId)>;

// Checks `bucket` (offsets may be anything) and works out how it is done among `ranks` ranks.
//
// Tensors that are one run of elements, not scaled before and not cast, are not packed. All else is
// packed without room in between, on all ranks alike: `count` depends on nothing but counts. So
// does whether a bucket is refused for its size, so that all ranks refuse it.
//
// An average of integers is a sum, divided when it is unpacked (rounded toward minus infinity, as
// in host memory).
//   kInvalidArgument, kResourceExhausted: as in DeviceBucketEnded. `plan` is undefined then.
absl::Status PlanBucket(const DeviceBucket& bucket, int ranks, FindSlab find_slab,
                        const FusionBuffer& fusion, BucketPlan* plan);

}  // namespace ringd

#endif  // RINGD_BACKENDS_DEVICE_BUCKET_PLAN_H_
