#include "daemon/sessions/registration.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "proto/base/text.h"
#include "proto/operations/operation_traits.h"

namespace ringd {
namespace {

absl::Status Wrong(const v1::TensorDescription& description, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("tensor '", CutToLength(description.name(), kMaxTensorNameBytes), "': ", what));
}

}  // namespace

std::string DescriptionKey(const Registration& registration, const std::string& meta_key) {
  // A name has no zero byte's meaning: its length comes first.
  return absl::StrCat(registration.communicator.value(), ",", registration.name.size(), ",",
                      registration.name, meta_key);
}

std::uint64_t SessionBytesOf(const Registration& registration) {
  return 512 + 2 * registration.name.size() + 32 * registration.meta.shape.size();
}

std::uint64_t TableBytesOfNames(std::size_t count, std::uint64_t name_bytes, std::size_t queues) {
  return count * (384 + 64 * queues) + 2 * name_bytes;
}

std::uint64_t TableBytesOfMeta(const Registration& registration) {
  return 256 + 32 * registration.meta.shape.size() + 8 * registration.meta.parts.size();
}

absl::StatusOr<Registration> CheckDescription(const v1::TensorDescription& description, int size) {
  if (description.name().empty() || description.name().size() > kMaxTensorNameBytes) {
    return Wrong(description, absl::StrCat("a name has 1 to ", kMaxTensorNameBytes, " bytes, not ",
                                           description.name().size()));
  }
  Registration result;
  result.communicator = CommunicatorId(description.communicator());
  result.name = description.name();
  result.meta.kind = static_cast<CollectiveKind>(description.kind());
  result.meta.dtype = static_cast<DataType>(description.data_type());
  result.meta.op = static_cast<ReduceOp>(description.op());
  if (!IsOffered(description.kind())) {
    return Wrong(description,
                 absl::StrCat("no collective on offer has the number ", description.kind()));
  }
  if (description.data_type() >= kDataTypeCount) {
    return Wrong(description,
                 absl::StrCat("no data type has the number ", description.data_type()));
  }
  if (description.op() >= kReduceOpCount) {
    return Wrong(description, absl::StrCat("no operator has the number ", description.op()));
  }
  if (static_cast<std::size_t>(description.shape_size()) > kMaxDimensions) {
    return Wrong(description, absl::StrCat(description.shape_size(), " dimensions, ",
                                           kMaxDimensions, " are allowed"));
  }
  result.meta.shape.assign(description.shape().begin(), description.shape().end());
  if (const std::string problem = ProblemOfShape(result.meta); !problem.empty()) {
    return Wrong(description, problem);
  }
  result.bytes = result.source_bytes = result.destination_bytes = ByteCount(result.meta);
  result.element_count = result.bytes / SizeOf(result.meta.dtype);
  result.meta.prescale = description.prescale() == 0 ? 1.0 : description.prescale();
  result.meta.postscale = description.postscale() == 0 ? 1.0 : description.postscale();
  if (!std::isfinite(result.meta.prescale) || !std::isfinite(result.meta.postscale)) {
    return Wrong(description, "prescale and postscale must be finite");
  }
  if (TraitsOf(result.meta.kind).rooted) {
    if (description.root_rank() < 0 || description.root_rank() >= size) {
      return Wrong(description, absl::StrCat("root rank ", description.root_rank(),
                                             " is not one of 0 to ", size - 1));
    }
    result.meta.root_rank = Rank(description.root_rank());
  }
  if (description.place() >= kTensorPlaceCount) {
    return Wrong(description, absl::StrCat("no memory has the number ", description.place()));
  }
  result.meta.place = static_cast<TensorPlace>(description.place());
  return result;
}

}  // namespace ringd
