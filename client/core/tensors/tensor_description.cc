#include "client/core/tensors/tensor_description.h"

#include <cmath>
#include <cstddef>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/base/text.h"
#include "proto/operations/operation_traits.h"

namespace ringd::client {
namespace {

// Elements and bytes are counted in 64 bits; one bit is kept so that signed arithmetic is safe too.
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 62;

absl::Status Wrong(absl::string_view name, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat("tensor '", name, "': ", problem));
}

absl::StatusOr<std::uint64_t> CountElements(const TensorDescription& description) {
  std::uint64_t count = 1;
  bool overflow = false;
  bool empty = false;
  for (std::size_t i = 0; i < description.shape.size(); ++i) {
    const std::int64_t extent = description.shape[i];
    if (extent < 0) {
      return Wrong(description.name,
                   absl::StrCat("dimension ", i, " is ", extent, "; it must be 0 or more"));
    }
    empty |= extent == 0;
    overflow |= __builtin_mul_overflow(count, static_cast<std::uint64_t>(extent), &count);
  }
  // A tensor without elements is one, whatever its other dimensions multiply to.
  if (empty) return 0;
  if (overflow || count > kMaxBytes / SizeOf(description.data_type)) {
    return Wrong(description.name, "its shape multiplies to more elements than can be counted");
  }
  return count;
}

absl::Status CheckAllReduce(const ringd_tensor& tensor, TensorDescription& description) {
  if (tensor.op < 0 || tensor.op >= kReduceOpCount) {
    return Wrong(description.name, absl::StrCat("op is ", tensor.op, "; it must be 0 (sum) to ",
                                                kReduceOpCount - 1, " (product)"));
  }
  description.op = static_cast<ReduceOp>(tensor.op);
  if (description.op == ReduceOp::kAverage && description.data_type == DataType::kBool) {
    return Wrong(description.name, "bool has no average; use max for 'any' or min for 'all'");
  }
  if (!std::isfinite(tensor.prescale) || !std::isfinite(tensor.postscale)) {
    return Wrong(description.name, "prescale and postscale must be finite");
  }
  description.prescale = tensor.prescale == 0.0 ? 1.0 : tensor.prescale;
  description.postscale = tensor.postscale == 0.0 ? 1.0 : tensor.postscale;
  return absl::OkStatus();
}

}  // namespace

std::string TensorDescription::Key() const {
  std::string key = name;
  const auto append = [&key](const auto& value) {
    char bytes[sizeof(value)];
    std::memcpy(bytes, &value, sizeof(value));
    key.append(bytes, sizeof(value));
  };
  key.push_back('\0');
  append(kind);
  append(data_type);
  append(op);
  append(root_rank);
  append(prescale);
  append(postscale);
  for (const std::int64_t extent : shape) append(extent);
  if (communicator != 0) {
    key.append("of communicator ");
    append(communicator);
  }
  if (place != TensorPlace::kHost) key.append("in device memory");
  return key;
}

absl::Status InTensor(absl::string_view name, const absl::Status& why) {
  return absl::Status(why.code(), absl::StrCat("tensor '", name, "': ", why.message()));
}

absl::StatusOr<TensorDescription> DescribeTensor(const ringd_tensor& tensor, std::int32_t size) {
  TensorDescription description;
  if (tensor.name == nullptr || tensor.name[0] == '\0') {
    return absl::InvalidArgumentError("a tensor has no name");
  }
  const std::size_t name_bytes = ::strnlen(tensor.name, kMaxTensorNameBytes + 1);
  description.name.assign(tensor.name, name_bytes);
  if (name_bytes > kMaxTensorNameBytes) {
    return Wrong(description.name.substr(0, 64) + "...",
                 absl::StrCat("its name is longer than ", kMaxTensorNameBytes, " bytes"));
  }
  if (!IsUtf8(description.name)) {
    return absl::InvalidArgumentError("a tensor's name is not valid UTF-8");
  }
  if (!IsOffered(static_cast<std::uint32_t>(tensor.kind))) {
    return Wrong(description.name, absl::StrCat("kind is ", tensor.kind,
                                                ", which is none of the RINGD_ALLREDUCE, ..."));
  }
  description.kind = static_cast<CollectiveKind>(tensor.kind);
  description.communicator = tensor.communicator;
  if (tensor.memory != RINGD_HOST_MEMORY && tensor.memory != RINGD_DEVICE_MEMORY) {
    return Wrong(description.name,
                 absl::StrCat("memory is ", tensor.memory,
                              ", which is none of RINGD_HOST_MEMORY and RINGD_DEVICE_MEMORY"));
  }
  const OperationTraits& traits = TraitsOf(description.kind);
  if (!traits.moves_data) {
    if (tensor.dimensions != 0) {
      return Wrong(description.name,
                   absl::StrCat("a ", Name(description.kind), " has no dimensions"));
    }
    description.data_type = DataType::kUint8;
    return description;
  }
  if (tensor.data_type < 0 || tensor.data_type >= kDataTypeCount) {
    return Wrong(description.name, absl::StrCat("data_type is ", tensor.data_type,
                                                "; it must be 0 to ", kDataTypeCount - 1));
  }
  description.data_type = static_cast<DataType>(tensor.data_type);
  description.place = static_cast<TensorPlace>(tensor.memory);
  if (tensor.dimensions < 0 || tensor.dimensions > kMaxTensorDimensions) {
    return Wrong(description.name, absl::StrCat("it has ", tensor.dimensions, " dimensions; 0 to ",
                                                kMaxTensorDimensions, " are allowed"));
  }
  if (tensor.dimensions > 0) {
    if (tensor.shape == nullptr) return Wrong(description.name, "shape is NULL");
    description.shape.assign(tensor.shape, tensor.shape + tensor.dimensions);
  }
  if (traits.combines) {
    if (absl::Status status = CheckAllReduce(tensor, description); !status.ok()) return status;
  }
  if (traits.rooted) {
    if (tensor.root_rank < 0 || tensor.root_rank >= size) {
      return Wrong(description.name,
                   absl::StrCat("root_rank is ", tensor.root_rank, "; it must be 0 to ", size - 1));
    }
    description.root_rank = tensor.root_rank;
  }
  const absl::StatusOr<std::uint64_t> count = CountElements(description);
  if (!count.ok()) return count.status();
  description.element_count = *count;
  return description;
}

}  // namespace ringd::client
