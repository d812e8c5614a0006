#include "client/core/tensors/registrations.h"

#include <bit>
#include <utility>

#include "proto/operations/operation_traits.h"
#include "proto/rank_exchange/rank_exchange.h"

namespace ringd::client {

Registrations::~Registrations() {
  for (std::uint32_t p = 0; p < count_.load(std::memory_order_relaxed); ++p) {
    delete EntryOf(p).load(std::memory_order_relaxed);
  }
  for (auto& chunk : chunks_) delete[] chunk.load(std::memory_order_relaxed);
}

Registrations::Place Registrations::PlaceOf(std::uint32_t position) noexcept {
  const std::uint32_t shifted = position + (1u << kFirstChunkBits);
  const std::uint32_t bits = static_cast<std::uint32_t>(std::bit_width(shifted)) - 1;
  return {bits - kFirstChunkBits, shifted - (1u << bits)};
}

ringd_registration Registrations::FindEqual(const std::string& key) const {
  MutexLock lock(mutex_);
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? 0 : found->second;
}

ringd_registration Registrations::Add(TensorDescription description,
                                      const RegisteredNumbers& numbers, std::int32_t rank,
                                      const LaneUse& lane) {
  std::string key = description.Key();
  auto registration = std::make_unique<Registration>();
  registration->numbers = numbers;
  registration->lane = lane;
  registration->bytes = description.bytes();
  registration->element_count = description.element_count;
  registration->element_bytes = static_cast<std::uint32_t>(SizeOf(description.data_type));
  const OperationTraits& traits = TraitsOf(description.kind);
  const bool is_root = description.root_rank == rank;
  registration->sends = registration->bytes > 0 && traits.Reads(is_root);
  registration->receives = registration->bytes > 0 && traits.Writes(is_root);
  // Not of the key alone: libraries that count the submissions of each description must not meet
  // one that counts those of a name.
  registration->signature = RankExchangeSignature("of its name," + key);
  registration->description = std::move(description);

  MutexLock lock(mutex_);
  const auto found = by_key_.find(key);
  if (found != by_key_.end()) return found->second;
  const ringd_registration number = TakeNumber();
  if (number == 0) return 0;
  if (counts_by_name_ && registration->description.communicator == 0) {
    std::shared_ptr<SubmissionCount>& submissions = submissions_[registration->description.name];
    if (submissions == nullptr) submissions = registration->submissions;
    registration->submissions = submissions;
  }
  registration->number.store(number, std::memory_order_relaxed);
  by_key_.emplace(std::move(key), number);
  const std::uint32_t position = (number & kPlaceMask) - 1;
  delete EntryOf(position).exchange(registration.release(), std::memory_order_acq_rel);
  if (position == count_.load(std::memory_order_relaxed)) {
    count_.store(position + 1, std::memory_order_release);
  }
  return number;
}

ringd_registration Registrations::TakeNumber() {
  if (removed_.size() > kKeptPlaces) {
    const ringd_registration before = removed_.front();
    removed_.pop_front();
    return before + (1U << kPlaceBits);  // turns over after 32,768 uses
  }
  const std::uint32_t position = count_.load(std::memory_order_relaxed);
  const Place place = PlaceOf(position);
  if (place.chunk >= kChunkCount) return 0;
  auto& chunk = chunks_[place.chunk];
  if (chunk.load(std::memory_order_relaxed) == nullptr) {
    chunk.store(
        new std::atomic<Registration*>[std::size_t{1} << (kFirstChunkBits + place.chunk)] {},
        std::memory_order_relaxed);
  }
  return position + 1;
}

std::vector<ringd_registration> Registrations::OfCommunicator(std::uint32_t communicator) const {
  MutexLock lock(mutex_);
  std::vector<ringd_registration> numbers;
  for (const auto& [key, number] : by_key_) {
    const Registration* const found = const_cast<Registrations*>(this)->Find(number);
    if (found != nullptr && found->description.communicator == communicator) {
      numbers.push_back(number);
    }
  }
  return numbers;
}

Registration* Registrations::Find(ringd_registration number) noexcept {
  const std::uint32_t place = number & kPlaceMask;
  if (place == 0 || place > count_.load(std::memory_order_acquire)) return nullptr;
  Registration* const found = EntryOf(place - 1).load(std::memory_order_acquire);
  return found->number.load(std::memory_order_relaxed) == number ? found : nullptr;
}

void Registrations::Remove(ringd_registration number) {
  MutexLock lock(mutex_);
  Registration* const registration = Find(number);
  if (registration == nullptr) return;
  by_key_.erase(registration->description.Key());
  registration->number.store(0, std::memory_order_relaxed);
  removed_.push_back(number);
}

}  // namespace ringd::client
