// A tensor as the user describes it, checked and in the types of the protocol.
#ifndef RINGD_CLIENT_CORE_TENSORS_TENSOR_DESCRIPTION_H_
#define RINGD_CLIENT_CORE_TENSORS_TENSOR_DESCRIPTION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/ringd.h"
#include "proto/types/collective_kind.h"
#include "proto/types/data_type.h"
#include "proto/types/reduce_op.h"
#include "proto/types/tensor_place.h"

namespace ringd::client {

inline constexpr std::size_t kMaxTensorNameBytes = 512;
inline constexpr std::int32_t kMaxTensorDimensions = 32;

// Invariant of one made by DescribeTensor: every field is valid, and fields that mean nothing for
// the kind have one fixed value, so that equal meanings compare equal.
struct TensorDescription {
  std::string name;
  CollectiveKind kind = CollectiveKind::kAllReduce;
  DataType data_type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::vector<std::int64_t> shape;
  double prescale = 1.0;
  double postscale = 1.0;
  std::int32_t root_rank = 0;
  std::uint64_t element_count = 0;
  std::uint32_t communicator = 0;  // its number within the job; 0: all ranks
  TensorPlace place = TensorPlace::kHost;

  std::uint64_t bytes() const noexcept { return element_count * SizeOf(data_type); }

  // A string that is equal exactly for equal descriptions.
  std::string Key() const;
};

// ringd's numbers for a description.
struct RegisteredNumbers {
  std::uint32_t registration = 0;  // what submissions name it by
  std::uint32_t tensor = 0;        // the communicator's number for the name
  std::uint32_t meta = 0;          // ... and for everything else
};

// `why` with the tensor's name in front.
absl::Status InTensor(absl::string_view name, const absl::Status& why);

// Checks `tensor` for a job of `size` ranks. kInvalidArgument: the message names the tensor, the
// field and what is allowed.
absl::StatusOr<TensorDescription> DescribeTensor(const ringd_tensor& tensor, std::int32_t size);

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_TENSORS_TENSOR_DESCRIPTION_H_
