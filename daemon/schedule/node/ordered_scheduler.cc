#include "daemon/schedule/node/ordered_scheduler.h"

#include <bit>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/schedule/protocol/ordered_name.h"

namespace ringd {
namespace {

absl::Status Wrong(absl::string_view name, absl::string_view what) {
  return absl::InternalError(
      absl::StrCat("the coordinator broke the protocol: '", name, "' ", what));
}

}  // namespace

std::uint64_t OrderedScheduler::DigestOf(const TensorMeta& meta) const noexcept {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a, by words
  const auto add = [&hash](std::uint64_t word) {
    hash = (hash ^ word) * 0x100000001b3u;
    hash ^= hash >> 29;
  };
  add(static_cast<std::uint64_t>(meta.kind));
  add(static_cast<std::uint64_t>(meta.dtype));
  add(static_cast<std::uint64_t>(meta.op));
  add(static_cast<std::uint32_t>(meta.root_rank.value()));
  add(std::bit_cast<std::uint64_t>(meta.prescale));
  add(std::bit_cast<std::uint64_t>(meta.postscale));
  for (const std::int64_t extent : meta.shape) add(static_cast<std::uint64_t>(extent));
  return hash;
}

OrderedScheduler::OrderedScheduler(Rank first_rank) : first_rank_(first_rank) {
  for (std::uint32_t p = 0; p < kOrderedPlaces; ++p) {
    places_[p].list =
        std::make_shared<const std::vector<TensorHandle>>(std::vector{TensorHandle(p)});
  }
}

TensorHandle OrderedScheduler::Intern(absl::string_view name) {
  return TensorHandle(OrderedPlaceOf(OrderedNumber(name).value_or(0)));
}

std::string OrderedScheduler::NameOf(TensorHandle place) const {
  return OrderedName(NumberAt(place.value()));
}

std::optional<NamedOccurrence> OrderedScheduler::Find(absl::string_view name) const {
  const std::optional<std::uint64_t> number = OrderedNumber(name);
  if (!number.has_value()) return std::nullopt;
  const std::uint32_t place = OrderedPlaceOf(*number);
  const std::uint64_t next = NumberAt(place);
  if (*number < next) return NamedOccurrence{TensorHandle(place), /*has_ended=*/true};
  return NamedOccurrence{TensorHandle(place), false, (*number - next) / kOrderedPlaces};
}

void OrderedScheduler::OnLocallyReady(TensorHandle handle, const TensorMeta& meta,
                                      bool /*follows_wait*/, TimePoint /*now*/) {
  Place& place = places_[handle.value()];
  place.ready = true;
  place.reports.assign(1, RankMeta{first_rank_, meta});
  // One that is known to fail need not begin.
  if (place.asked_for == place.occurrence) return Announce(handle.value());
  StartInOrder();
}

void OrderedScheduler::StartInOrder() {
  for (;; ++next_start_) {
    const std::uint32_t number = OrderedPlaceOf(next_start_);
    Place& place = places_[number];
    const std::uint64_t at_place = NumberAt(number);
    if (at_place > next_start_) continue;  // It has ended.
    if (at_place < next_start_ || !place.ready || place.announced) return;
    place.started = true;
    actions_.push_back(StartOperation{DataId(number, place.occurrence), place.list});
  }
}

void OrderedScheduler::OnLocalMismatch(TensorHandle handle, std::vector<RankMeta> reports,
                                       TimePoint /*now*/) {
  Place& place = places_[handle.value()];
  place.ready = true;
  place.reports = std::move(reports);
  Announce(handle.value());
}

bool OrderedScheduler::OnDisagreement(OperationId id) {
  const std::uint32_t place = PlaceOf(id).value();
  // The coordinator has ended it, and the engine does not know so far.
  if (id.sequence != places_[place].occurrence) return true;
  // It is not under way any more.
  places_[place].started = false;
  Announce(place);
  return true;
}

void OrderedScheduler::Announce(std::uint32_t number) {
  Place& place = places_[number];
  if (std::exchange(place.announced, true)) return;
  ReadyTensor tensor{OrderedName(NumberAt(number)), place.reports};
  actions_.push_back(SendToCoordinator{Ready{0, {std::move(tensor)}}});
}

void OrderedScheduler::GoOn(std::uint32_t number) {
  Place& place = places_[number];
  if (place.asked_for == place.occurrence) place.asked_for.reset();
  place.ready = place.started = place.announced = false;
  ++place.occurrence;
}

void OrderedScheduler::OnFinished(OperationId id, TimePoint /*now*/) { GoOn(PlaceOf(id).value()); }

absl::Status OrderedScheduler::OnInquiry(absl::string_view name) {
  const std::optional<std::uint64_t> number = OrderedNumber(name);
  if (!number.has_value() || *number / kOrderedPlaces > UINT32_MAX) {
    return Wrong(name, "is asked for");
  }
  const std::uint32_t at = OrderedPlaceOf(*number);
  Place& place = places_[at];
  const auto occurrence = static_cast<std::uint32_t>(*number / kOrderedPlaces);
  // It ends nowhere before this node has answered: some node announces what is over.
  if (occurrence < place.occurrence) return absl::OkStatus();
  if (place.ready && occurrence == place.occurrence) {
    Announce(at);
  } else {
    place.asked_for = occurrence;
  }
  return absl::OkStatus();
}

absl::Status OrderedScheduler::OnMessage(const CoordinatorMessage& message, TimePoint /*now*/) {
  if (const auto* execute = std::get_if<Execute>(&message)) {
    // All nodes describe it alike, though a message said otherwise.
    return absl::InternalError(absl::StrCat(
        "what another node sent for '", execute->tensors.empty() ? "" : execute->tensors.front(),
        "' does not fit, and all nodes describe it alike"));
  }
  const auto* failed = std::get_if<FailTensor>(&message);
  if (failed == nullptr) {
    return absl::InternalError("the coordinator plans operations that are matched by order");
  }
  const std::optional<std::uint64_t> number = OrderedNumber(failed->tensor);
  const std::uint32_t at = number.has_value() ? OrderedPlaceOf(*number) : 0;
  Place& place = places_[at];
  if (!number.has_value() || *number != NumberAt(at) || !place.announced) {
    return Wrong(failed->tensor, "ends, which this node has not announced");
  }
  if (place.started) actions_.push_back(CancelOperation{DataId(at, place.occurrence)});
  actions_.push_back(TensorFailed{TensorHandle(at), absl::InvalidArgumentError(failed->error)});
  GoOn(at);
  StartInOrder();
  return absl::OkStatus();
}

void OrderedScheduler::TakeActions(std::vector<Action>& out) {
  out.insert(out.end(), std::make_move_iterator(actions_.begin()),
             std::make_move_iterator(actions_.end()));
  actions_.clear();
}

}  // namespace ringd
