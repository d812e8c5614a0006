#include "backends/device/bucket_plan.h"

#include <catch2/catch.hpp>
#include <optional>
#include <vector>

#include "backends/cuda/timeline.h"

namespace ringd {
namespace {

constexpr DeviceSlabId kSlab{1};
constexpr DeviceAddress kBase = 0x100000000;
constexpr std::size_t kBytes = 1 << 20;
const FusionBuffer kFusion{0x900000000, 4096, "fusion"};

std::optional<SlabRange> Find(DeviceSlabId id) {
  if (id != kSlab) return std::nullopt;
  return SlabRange{kBase, kBytes};
}

DeviceTensor TensorAt(std::uint64_t source, std::uint64_t destination, std::uint64_t count) {
  DeviceTensor tensor;
  tensor.slab = kSlab;
  tensor.source = kTimelineBytes + source;
  tensor.destination = kTimelineBytes + destination;
  tensor.count = count;
  return tensor;
}

BucketPlan PlanOf(const DeviceBucket& bucket, int ranks = 2) {
  BucketPlan plan;
  const absl::Status status = PlanBucket(bucket, ranks, Find, kFusion, &plan);
  INFO(status.ToString());
  CHECK(status.ok());
  return plan;
}

DeviceBucket BucketOf(std::vector<DeviceTensor> tensors) {
  DeviceBucket bucket;
  bucket.tensors = std::move(tensors);
  return bucket;
}

TEST_CASE("PlanBucket: tensors that follow each other are sent from where they are") {
  const BucketPlan plan =
      PlanOf(BucketOf({TensorAt(0, 8000, 10), TensorAt(40, 8040, 0), TensorAt(40, 8040, 5)}));
  CHECK(plan.pack.segments().empty());
  CHECK(plan.unpack.segments().empty());
  CHECK(plan.send == kBase + kTimelineBytes);
  CHECK(plan.receive == kBase + kTimelineBytes + 8000);
  CHECK(plan.count == 15);
}

TEST_CASE("PlanBucket: the count is the same whether tensors lie in one piece or not") {
  const BucketPlan together = PlanOf(BucketOf({TensorAt(0, 0, 3), TensorAt(12, 12, 5)}));
  const BucketPlan apart = PlanOf(BucketOf({TensorAt(0, 0, 3), TensorAt(512, 512, 5)}));
  CHECK(together.count == apart.count);
  CHECK(apart.send == kFusion.address);
  CHECK(apart.receive == kFusion.address);
  REQUIRE(apart.pack.segments().size() == 2);
  CHECK(apart.pack.segments()[1].destination == kFusion.address + 12);
  REQUIRE(apart.unpack.segments().size() == 2);
  CHECK(apart.unpack.segments()[1].source == kFusion.address + 12);
  CHECK(apart.unpack.segments()[1].destination == kBase + kTimelineBytes + 512);
}

TEST_CASE("PlanBucket: whether a bucket is too large does not depend on where its tensors lie") {
  BucketPlan plan;
  for (const std::uint64_t second : {4000, 8000}) {
    const DeviceBucket bucket = BucketOf({TensorAt(0, 0, 1000), TensorAt(second, second, 1000)});
    CHECK(PlanBucket(bucket, 2, Find, kFusion, &plan).code() ==
          absl::StatusCode::kResourceExhausted);
  }
  CHECK(PlanOf(BucketOf({TensorAt(0, 0, 2000)})).count == 2000);
}

TEST_CASE("PlanBucket: of a broadcast the root packs and the others unpack, unscaled") {
  DeviceBucket bucket = BucketOf({TensorAt(0, 0, 3), TensorAt(512, 512, 5)});
  bucket.tensors[0].prescale = 2.0;
  bucket.op = ReduceOp::kAverage;
  bucket.broadcast = DeviceBroadcast{1, true};
  const BucketPlan root = PlanOf(bucket);
  REQUIRE(root.pack.segments().size() == 2);
  CHECK(root.pack.segments()[0].factor == 1.0);
  CHECK(root.unpack.segments().empty());
  bucket.broadcast->is_root = false;
  const BucketPlan other = PlanOf(bucket);
  CHECK(other.pack.segments().empty());
  CHECK(other.unpack.segments().size() == 2);
  CHECK(other.count == root.count);
}

TEST_CASE("PlanBucket: a broadcast packs elements that NCCL does not reduce, as bytes") {
  DeviceBucket bucket = BucketOf({TensorAt(0, 0, 3), TensorAt(512, 512, 5)});
  bucket.type = bucket.wire_type = DataType::kInt16;
  bucket.broadcast = DeviceBroadcast{0, true};
  const BucketPlan plan = PlanOf(bucket);
  CHECK(plan.count == 8);
  REQUIRE(plan.pack.segments().size() == 2);
  CHECK(plan.pack.segments()[1].source_type == DataType::kUint8);
  CHECK(plan.pack.segments()[1].count == 10);
  CHECK(plan.pack.segments()[1].destination == plan.pack.segments()[0].destination + 6);
}

TEST_CASE("PlanBucket: one tensor is scaled where its result is, and its input stays") {
  DeviceBucket bucket = BucketOf({TensorAt(0, 8000, 2000)});
  bucket.tensors[0].prescale = 2;
  bucket.tensors[0].result.factor = 0.25;
  const BucketPlan plan = PlanOf(bucket);
  const DeviceAddress result = kBase + kTimelineBytes + 8000;
  REQUIRE(plan.pack.segments().size() == 1);
  CHECK(plan.pack.segments()[0].source == kBase + kTimelineBytes);
  CHECK(plan.pack.segments()[0].destination == result);
  CHECK(plan.pack.segments()[0].factor == 2);
  CHECK(plan.send == result);
  CHECK(plan.receive == result);
  REQUIRE(plan.unpack.segments().size() == 1);
  CHECK(plan.unpack.segments()[0].source == result);
  CHECK(plan.unpack.segments()[0].factor == 0.25);
}

TEST_CASE("PlanBucket: integers are summed and divided, floating point is NCCL's to average") {
  DeviceBucket bucket = BucketOf({TensorAt(0, 0, 10)});
  bucket.op = ReduceOp::kAverage;
  CHECK(PlanOf(bucket).op == ReduceOp::kAverage);
  CHECK(PlanOf(bucket).unpack.segments().empty());
  bucket.type = bucket.wire_type = DataType::kInt32;
  const BucketPlan plan = PlanOf(bucket, 3);
  CHECK(plan.op == ReduceOp::kSum);
  REQUIRE(plan.unpack.segments().size() == 1);
  CHECK(plan.unpack.segments()[0].divisor == 3);
}

TEST_CASE("PlanBucket: what travels narrower is packed, be it one tensor") {
  DeviceBucket bucket = BucketOf({TensorAt(0, 0, 10)});
  bucket.wire_type = DataType::kFloat16;
  const BucketPlan plan = PlanOf(bucket);
  CHECK(plan.send == kFusion.address);
  REQUIRE(plan.pack.segments().size() == 1);
  CHECK(plan.pack.segments()[0].destination_type == DataType::kFloat16);
  REQUIRE(plan.unpack.segments().size() == 1);
  CHECK(plan.unpack.segments()[0].destination_type == DataType::kFloat32);
}

TEST_CASE("PlanBucket: runs with different scalings are not one") {
  DeviceBucket bucket = BucketOf({TensorAt(0, 0, 10), TensorAt(40, 40, 10)});
  bucket.tensors[1].result.factor = 2;
  CHECK(PlanOf(bucket).pack.segments().size() == 2);
}

}  // namespace
}  // namespace ringd
