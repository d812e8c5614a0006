#include "daemon/sessions/registration_table.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace ringd {

std::uint32_t RegistrationTable::Add(Registration registration) {
  const auto [known, added] = numbers_.try_emplace(KeyOf(registration), 0);
  if (!added) return known->second;
  std::uint32_t place = 0;
  if (free_.empty()) {
    place = static_cast<std::uint32_t>(entries_.size());
    entries_.emplace_back().number = place;
  } else {
    place = free_.front();
    free_.pop_front();
  }
  Entry& entry = entries_[place];
  entry.registration = std::make_unique<const Registration>(std::move(registration));
  return known->second = entry.number;
}

absl::StatusOr<std::unique_ptr<const Registration>> RegistrationTable::Remove(
    std::uint32_t number) {
  const Registration* const registration = Find(number);
  if (registration == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("there is no registration ", number, "; it may have been given back before"));
  }
  const std::uint32_t place = number & kPlaceMask;
  Entry& entry = entries_[place];
  if (entry.in_flight > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("registration ", number, " (tensor '", registration->name,
                     "') is in use: ", entry.in_flight, " of its submissions are in flight"));
  }
  numbers_.erase(KeyOf(*registration));
  const std::uint32_t uses = ((number >> kPlaceBits) + 1) % kMostUses;
  entry.number = uses << kPlaceBits | place;
  free_.push_back(place);
  return std::move(entry.registration);
}

}  // namespace ringd
