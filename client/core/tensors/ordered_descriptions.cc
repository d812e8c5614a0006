#include "client/core/tensors/ordered_descriptions.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/operations/operation_traits.h"

namespace ringd::client {

OrderedDescriptions::OrderedDescriptions(const std::string& communicator,
                                         std::vector<std::int32_t> ranks, std::int32_t rank,
                                         const LaneUse& lane)
    : communicator_(communicator),
      name_(absl::StrCat("an operation on ", communicator)),
      ranks_(std::move(ranks)),
      highest_rank_(*std::max_element(ranks_.begin(), ranks_.end())),
      rank_(rank),
      lane_(lane) {}

absl::StatusOr<TensorDescription> OrderedDescriptions::Describe(
    const ringd_collective& collective) const {
  if (collective.count > static_cast<std::uint64_t>(INT64_MAX)) {
    return absl::InvalidArgumentError(absl::StrCat("an operation of ", collective.count,
                                                   " elements on communicator '", communicator_,
                                                   "': so many can't be addressed"));
  }
  const auto count = static_cast<std::int64_t>(collective.count);
  const bool has_elements = !IsOffered(static_cast<std::uint32_t>(collective.kind)) ||
                            TraitsOf(static_cast<CollectiveKind>(collective.kind)).moves_data;
  ringd_tensor tensor{};
  tensor.struct_size = sizeof(tensor);
  tensor.name = name_.c_str();
  tensor.kind = collective.kind;
  tensor.data_type = collective.data_type;
  tensor.op = collective.op;
  tensor.dimensions = has_elements || count != 0 ? 1 : 0;
  tensor.shape = &count;
  tensor.prescale = collective.prescale;
  tensor.postscale = collective.postscale;
  tensor.root_rank = collective.root_rank;
  absl::StatusOr<TensorDescription> described = DescribeTensor(tensor, highest_rank_ + 1);
  if (described.ok() && TraitsOf(described->kind).rooted &&
      std::find(ranks_.begin(), ranks_.end(), described->root_rank) == ranks_.end()) {
    return absl::InvalidArgumentError(absl::StrCat("root_rank is ", described->root_rank,
                                                   ", which is no rank of communicator '",
                                                   communicator_, "'"));
  }
  return described;
}

absl::StatusOr<Registration*> OrderedDescriptions::Take(const ringd_collective& collective) {
  absl::StatusOr<TensorDescription> described = Describe(collective);
  if (!described.ok()) return described.status();
  Registration* taken = nullptr;
  {
    MutexLock lock(mutex_);
    if (free_.empty()) free_.push_back(&all_.emplace_back());
    taken = free_.back();
    free_.pop_back();
  }
  const OperationTraits& traits = TraitsOf(described->kind);
  const bool is_root = described->root_rank == rank_;
  taken->ordered = this;
  taken->lane = lane_;
  taken->numbers.registration = lane_.communicator;
  taken->element_count = described->element_count;
  taken->element_bytes = static_cast<std::uint32_t>(SizeOf(described->data_type));
  taken->bytes = described->bytes();
  taken->sends = taken->bytes > 0 && traits.Reads(is_root);
  taken->receives = taken->bytes > 0 && traits.Writes(is_root);
  taken->description = *std::move(described);
  taken->is_scaled = ScalesOf(*taken) != OrderedScales{};
  return taken;
}

void OrderedDescriptions::GiveBack(Registration& description) {
  MutexLock lock(mutex_);
  free_.push_back(&description);
}

bool OrderedDescriptions::AnyTaken() const {
  MutexLock lock(mutex_);
  return free_.size() != all_.size();
}

OrderedDescription OrderedDescriptions::WordOf(const Registration& description) noexcept {
  const TensorDescription& said = description.description;
  return {.kind = said.kind,
          .data_type = said.data_type,
          .op = said.op,
          .is_scaled = description.is_scaled};
}

}  // namespace ringd::client
