#include "daemon/sessions/ordered_submissions.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/schedule/protocol/ordered_name.h"
#include "proto/operations/operation_traits.h"

namespace ringd {

void OrderedSubmissions::Open(CommunicatorId communicator, std::vector<std::int32_t> ranks) {
  counts_[communicator.value()] = Use{0, std::move(ranks)};
}

absl::StatusOr<Registration*> OrderedSubmissions::Begin(const Submission& record,
                                                        const OrderedScales& scales) {
  const auto found = counts_.find(record.registration);
  if (found == counts_.end()) {
    return absl::InvalidArgumentError(absl::StrCat("submission by order on communicator ",
                                                   record.registration,
                                                   ", on which this rank has no such operations"));
  }
  const std::optional<OrderedDescription> said = OrderedDescription::FromWord(record.description);
  if (!said.has_value() || (said->op == ReduceOp::kAverage && said->data_type == DataType::kBool)) {
    return absl::InvalidArgumentError(
        absl::StrCat("submission by order of what is no operation (", record.description, ")"));
  }
  const OperationTraits& traits = TraitsOf(said->kind);
  OrderedScales used = said->is_scaled && traits.combines ? scales : OrderedScales{};
  // As by name.
  if (used.prescale == 0) used.prescale = 1;
  if (used.postscale == 0) used.postscale = 1;
  if (!std::isfinite(used.prescale) || !std::isfinite(used.postscale)) {
    return absl::InvalidArgumentError("submission by order with scales that are not finite");
  }
  const Use& use = found->second;
  if (traits.rooted &&
      std::find(use.ranks.begin(), use.ranks.end(), record.root_rank) == use.ranks.end()) {
    return absl::InvalidArgumentError(absl::StrCat("submission by order with root ",
                                                   record.root_rank,
                                                   ", which is no rank of the communicator"));
  }
  std::uint64_t bytes = 0;
  if (!traits.moves_data && record.element_count != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("submission by order of a ", Name(said->kind), " with elements"));
  }
  if (__builtin_mul_overflow(record.element_count, SizeOf(said->data_type), &bytes) ||
      bytes > (std::uint64_t{1} << 62)) {
    return absl::InvalidArgumentError("submission by order of more than 2^62 bytes");
  }
  if (free_.empty()) free_.push_back(&all_.emplace_back());
  Registration* const registration = free_.back();
  free_.pop_back();
  registration->communicator = CommunicatorId(record.registration);
  registration->name = OrderedName(use.count);
  registration->tensor = OrderedPlaceOf(use.count);
  registration->order = use.count;
  TensorMeta& meta = registration->meta;
  meta.kind = said->kind;
  // What means nothing for the kind has one value: all ranks' must be equal.
  meta.dtype = traits.moves_data ? said->data_type : DataType::kFloat32;
  meta.op = traits.combines ? said->op : ReduceOp::kSum;
  meta.prescale = used.prescale;
  meta.postscale = used.postscale;
  meta.root_rank = Rank(traits.rooted ? record.root_rank : 0);
  meta.shape.clear();
  if (traits.moves_data) meta.shape.push_back(static_cast<std::int64_t>(record.element_count));
  registration->element_count = record.element_count;
  registration->bytes = registration->source_bytes = registration->destination_bytes = bytes;
  return registration;
}

void OrderedSubmissions::Accept(const Registration& registration) noexcept {
  const auto found = counts_.find(registration.communicator.value());
  if (found != counts_.end()) ++found->second.count;
}

void OrderedSubmissions::End(const Registration* registration) noexcept {
  free_.push_back(const_cast<Registration*>(registration));
}

std::uint64_t OrderedSubmissions::CountOf(CommunicatorId communicator) const noexcept {
  const auto found = counts_.find(communicator.value());
  return found == counts_.end() ? 0 : found->second.count;
}

}  // namespace ringd
