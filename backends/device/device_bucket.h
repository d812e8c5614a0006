// One bucket of tensors in device memory, as the daemon hands it to a GPU's thread.
#ifndef RINGD_BACKENDS_DEVICE_DEVICE_BUCKET_H_
#define RINGD_BACKENDS_DEVICE_DEVICE_BUCKET_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "proto/base/clock.h"
#include "proto/reduce/reduce.h"
#include "proto/types/data_type.h"
#include "proto/types/ids.h"
#include "proto/types/reduce_op.h"

namespace ringd {

// The owner numbers them; one that has been used is not used again for another one.
using DeviceSlabId = StrongId<struct DeviceSlabIdTag, std::uint64_t>;
using DeviceCommunicatorId = StrongId<struct DeviceCommunicatorIdTag, std::uint64_t>;

// A run of elements in a slab, in its bucket's order. Offsets are bytes from the slab's first byte
// and may be what a trainer wrote: the thread checks them.
struct DeviceTensor {
  DeviceSlabId slab;
  std::uint64_t source = 0;
  std::uint64_t destination = 0;  // the same as `source`, or a range that overlaps nothing else
  std::uint64_t count = 0;        // of elements; 0 is valid
  double prescale = 1.0;          // of this rank's elements, before they are combined
  Scaling result;                 // of the total; the division of an average is not part of it
};

// A value of a slab's timeline: to wait for, or to signal.
struct TimelinePoint {
  DeviceSlabId slab;
  std::uint32_t slot = 0;
  std::uint64_t value = 0;
};

// What one rank sends to all others, as it is.
struct DeviceBroadcast {
  int root = 0;  // that rank
  bool is_root = false;
};

// An all-reduce, or a broadcast. All ranks of the communicator have the same buckets in the same
// order, with the same counts, types, operators and roots.
struct DeviceBucket {
  std::uint64_t id = 0;  // comes back in its end
  DeviceCommunicatorId communicator;
  DataType type = DataType::kFloat32;  // of the tensors
  // What NCCL reduces; another one than `type` (both of floating point) for what travels narrower.
  DataType wire_type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  // Nothing: an all-reduce. Else operator, scales and divisors count for nothing, and a tensor's
  // source is its destination: the root's is read, the others' are written.
  std::optional<DeviceBroadcast> broadcast;
  std::vector<DeviceTensor> tensors;
  std::vector<TimelinePoint> ready;  // what the tensors wait for: of each slot the last value
  std::vector<TimelinePoint> done;   // signalled when the results are in place
  Clock::time_point deadline;

  // A broadcast is of bytes: those of types that NCCL does not reduce are moved, too. So this is
  // what the tensors' memory has,
  DataType moved_type() const noexcept { return broadcast ? DataType::kUint8 : type; }
  // and this what NCCL is told, of which each element is so many.
  DataType nccl_type() const noexcept { return broadcast ? DataType::kUint8 : wire_type; }
  std::size_t nccl_parts() const noexcept { return broadcast ? SizeOf(wire_type) : 1; }
};

// What the thread saw when. The host looks now and then, so each is late by up to a poll's pause;
// the epoch: not seen.
struct DeviceBucketTimes {
  Clock::time_point launched;  // all of it is on the stream
  Clock::time_point ready;     // the tensors were
  Clock::time_point done;      // the results are in place
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_DEVICE_DEVICE_BUCKET_H_
