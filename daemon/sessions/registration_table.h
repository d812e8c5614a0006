// The descriptions of one session that live, by number.
#ifndef RINGD_DAEMON_SESSIONS_REGISTRATION_TABLE_H_
#define RINGD_DAEMON_SESSIONS_REGISTRATION_TABLE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/sessions/registration.h"
#include "proto/types/ids.h"

namespace ringd {

// A number is a place and how often that place has been given back, so that one that was given back
// is not taken for another description. It is the same again after 65,535 uses of its place; places
// are used again in turn.
//
// Thread safety: none; the progress thread owns it.
// Invariants: equal descriptions share a number. One of which a submission is in flight is not
//   removed.
class RegistrationTable {
 public:
  static constexpr std::uint32_t kMost = 65'536;

  // The number for this description; the same for an equal one, numbered as such by its
  // communicator.
  // Requirement: count() < kMost, or an equal one is there.
  std::uint32_t Add(Registration registration);

  // Null if there is no such number. Stable until it is removed.
  const Registration* Find(std::uint32_t number) const noexcept {
    const std::uint32_t place = number & kPlaceMask;
    if (place >= entries_.size() || entries_[place].number != number) return nullptr;
    return entries_[place].registration.get();
  }

  // A submission of it begins. Requirement: there is such a number.
  void Begin(std::uint32_t number) noexcept { ++entries_[number & kPlaceMask].in_flight; }
  // One that has begun ends. No effect if none has.
  void End(std::uint32_t number) noexcept {
    if (Find(number) != nullptr && entries_[number & kPlaceMask].in_flight > 0) {
      --entries_[number & kPlaceMask].in_flight;
    }
  }

  // Takes it out.
  //   kNotFound: there is no such number.
  //   kFailedPrecondition: a submission of it is in flight. Both name the number.
  absl::StatusOr<std::unique_ptr<const Registration>> Remove(std::uint32_t number);

  // How many there are.
  std::size_t count() const noexcept { return numbers_.size(); }

 private:
  static constexpr std::uint32_t kPlaceBits = 16;
  static constexpr std::uint32_t kPlaceMask = (1U << kPlaceBits) - 1;
  // The highest is left out: kPingRegistration would be one of its numbers.
  static constexpr std::uint32_t kMostUses = (1U << (32 - kPlaceBits)) - 1;

  struct Entry {
    std::uint32_t number = 0;
    std::uint32_t in_flight = 0;
    std::unique_ptr<const Registration> registration;  // null: the place is free
  };
  // By communicator, tensor and meta, as the communicator numbers them.
  using Key = std::tuple<CommunicatorId, std::uint32_t, std::uint32_t>;
  static Key KeyOf(const Registration& registration) {
    return {registration.communicator, registration.tensor, registration.meta_id};
  }

  std::vector<Entry> entries_;      // by place
  std::deque<std::uint32_t> free_;  // places; the one that has been free for longest first
  std::map<Key, std::uint32_t> numbers_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SESSIONS_REGISTRATION_TABLE_H_
