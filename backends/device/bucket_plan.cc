#include "backends/device/bucket_plan.h"

#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/cuda/timeline.h"

namespace ringd {
namespace {

constexpr std::uint64_t kMostElements = std::numeric_limits<std::uint64_t>::max() / 16;

// A tensor's addresses, or several tensors' that follow each other in both places.
struct Run {
  DeviceAddress source = 0;
  DeviceAddress destination = 0;
  std::uint64_t count = 0;
  double prescale = 1.0;
  Scaling result;
};

// `offset` in a slab of `bytes`, for `count` elements of `size` bytes.
absl::Status CheckRange(std::uint64_t offset, std::uint64_t count, std::size_t size,
                        std::size_t bytes) {
  if (count > kMostElements || offset < kTimelineBytes || offset > bytes ||
      count * size > bytes - offset) {
    return absl::InvalidArgumentError(absl::StrCat(
        count, " elements of ", size, " bytes at ", offset,
        " are not in the slab, which has tensors from ", kTimelineBytes, " to ", bytes));
  }
  if (offset % size == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("elements of ", size, " bytes at ", offset, " are not aligned"));
}

absl::Status CheckTypes(const DeviceBucket& bucket) {
  if (!IsValid(bucket.type) || !IsValid(bucket.wire_type) || !IsValid(bucket.op)) {
    return absl::InvalidArgumentError("the bucket has no valid type or operator");
  }
  if (bucket.type != bucket.wire_type &&
      !(IsFloatingPoint(bucket.type) && IsFloatingPoint(bucket.wire_type))) {
    return absl::InvalidArgumentError(absl::StrCat("elements of type ", Name(bucket.type),
                                                   " don't travel as ", Name(bucket.wire_type)));
  }
  return absl::OkStatus();
}

// Puts the run behind the last one if it continues that.
void Append(const Run& run, std::size_t size, std::vector<Run>* runs) {
  if (!runs->empty()) {
    Run& last = runs->back();
    const std::uint64_t bytes = last.count * size;
    if (last.source + bytes == run.source && last.destination + bytes == run.destination &&
        last.prescale == run.prescale && last.result == run.result) {
      last.count += run.count;
      return;
    }
  }
  runs->push_back(run);
}

MoveSegment SegmentOf(DeviceAddress source, DataType from, DeviceAddress destination, DataType to,
                      std::uint64_t count) {
  MoveSegment segment;
  segment.source = source;
  segment.destination = destination;
  segment.count = count;
  segment.source_type = from;
  segment.destination_type = to;
  return segment;
}

// Where the elements are.
absl::Status PlanInPlace(const Run& run, DataType type, BucketPlan* plan) {
  plan->receive = run.destination;
  plan->send = run.source;
  if (run.prescale != 1.0) {
    MoveSegment segment = SegmentOf(run.source, type, run.destination, type, run.count);
    segment.factor = run.prescale;
    if (auto status = plan->pack.Add(segment); !status.ok()) return status;
    plan->send = run.destination;
  }
  if (run.result.IsIdentity()) return absl::OkStatus();
  MoveSegment segment = SegmentOf(run.destination, type, run.destination, type, run.count);
  segment.factor = run.result.factor;
  segment.divisor = run.result.divisor;
  return plan->unpack.Add(segment);
}

absl::Status PlanPacked(const DeviceBucket& bucket, const std::vector<Run>& runs,
                        DeviceAddress fusion, BucketPlan* plan) {
  const bool sends = !bucket.broadcast || bucket.broadcast->is_root;
  const bool receives = !bucket.broadcast || !bucket.broadcast->is_root;
  const DataType type = bucket.moved_type();
  const DataType wire_type = bucket.nccl_type();
  const std::size_t parts = bucket.nccl_parts();
  plan->send = plan->receive = fusion;
  DeviceAddress at = fusion;
  for (const Run& run : runs) {
    MoveSegment in = SegmentOf(run.source, type, at, wire_type, run.count * parts);
    in.factor = run.prescale;
    absl::Status status = sends ? plan->pack.Add(in) : absl::OkStatus();
    MoveSegment out = SegmentOf(at, wire_type, run.destination, type, run.count * parts);
    out.factor = run.result.factor;
    out.divisor = run.result.divisor;
    if (status.ok() && receives) status = plan->unpack.Add(out);
    if (!status.ok()) return status;
    at += run.count * SizeOf(bucket.wire_type);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status PlanBucket(const DeviceBucket& bucket, int ranks, FindSlab find_slab,
                        const FusionBuffer& fusion, BucketPlan* plan) {
  *plan = BucketPlan();
  if (auto status = CheckTypes(bucket); !status.ok()) return status;
  const bool combines = !bucket.broadcast.has_value();
  const bool divides =
      combines && bucket.op == ReduceOp::kAverage && !IsFloatingPoint(bucket.wire_type);
  plan->op = divides ? ReduceOp::kSum : bucket.op;
  const std::size_t size = SizeOf(bucket.type);
  std::vector<Run> runs;
  std::size_t tensors = 0;
  for (const DeviceTensor& tensor : bucket.tensors) {
    const std::optional<SlabRange> slab = find_slab(tensor.slab);
    if (!slab) {
      return absl::InvalidArgumentError(
          absl::StrCat("slab ", tensor.slab.value(), " is not there, or no longer"));
    }
    for (const std::uint64_t offset : {tensor.source, tensor.destination}) {
      auto status = CheckRange(offset, tensor.count, size, slab->bytes);
      if (!status.ok()) return status;
    }
    Scaling result = combines ? tensor.result : Scaling();
    if (result.divisor < 1 || result.divisor > std::numeric_limits<std::int64_t>::max() / ranks) {
      return absl::InvalidArgumentError(
          absl::StrCat("a total can't be divided by ", result.divisor));
    }
    if (divides) result.divisor *= ranks;
    if (tensor.count == 0) continue;
    ++tensors;
    plan->count += tensor.count;
    Append({slab->address + tensor.source, slab->address + tensor.destination, tensor.count,
            combines ? tensor.prescale : 1.0, result},
           size, &runs);
  }
  if (plan->count == 0) return absl::OkStatus();
  const bool is_cast = bucket.type != bucket.wire_type;
  const std::uint64_t bytes = plan->count * SizeOf(bucket.wire_type);
  if ((tensors > 1 || is_cast) && bytes > fusion.bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a bucket of ", tensors, " tensors has ", bytes, " bytes, and the fusion buffer ",
        fusion.bytes, "; `", fusion.setting, "` says how large it is"));
  }
  if (runs.size() == 1 && !is_cast) return PlanInPlace(runs.front(), bucket.type, plan);
  return PlanPacked(bucket, runs, fusion.address, plan);
}

}  // namespace ringd
