#include "client/core/tensors/registrations.h"

#include <bit>
#include <utility>

#include "proto/fast_path/fast_path_exchange.h"

namespace ringd::client {

Registrations::~Registrations() {
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
                                      const RegisteredNumbers& numbers, std::int32_t rank) {
  std::string key = description.Key();
  auto registration = std::make_unique<Registration>();
  registration->numbers = numbers;
  registration->bytes = description.bytes();
  registration->element_count = description.element_count;
  registration->element_bytes = static_cast<std::uint32_t>(SizeOf(description.data_type));
  const bool moves = description.kind != CollectiveKind::kBarrier && registration->bytes > 0;
  const bool is_broadcast = description.kind == CollectiveKind::kBroadcast;
  const bool is_root = is_broadcast && description.root_rank == rank;
  registration->sends = moves && (!is_broadcast || is_root);
  registration->receives = moves && !is_root;
  registration->signature = FastPathSignature(key);
  registration->description = std::move(description);

  MutexLock lock(mutex_);
  const auto found = by_key_.find(key);
  if (found != by_key_.end()) return found->second;
  const std::uint32_t position = count_.load(std::memory_order_relaxed);
  const Place place = PlaceOf(position);
  if (place.chunk >= kChunkCount) return 0;
  auto& chunk = chunks_[place.chunk];
  if (chunk.load(std::memory_order_relaxed) == nullptr) {
    chunk.store(
        new std::unique_ptr<Registration>[std::size_t{1} << (kFirstChunkBits + place.chunk)],
        std::memory_order_relaxed);
  }
  by_key_.emplace(std::move(key), position + 1);
  chunk.load(std::memory_order_relaxed)[place.index] = std::move(registration);
  count_.store(position + 1, std::memory_order_release);
  return position + 1;
}

Registration* Registrations::Find(ringd_registration number) noexcept {
  if (number == 0 || number > count_.load(std::memory_order_acquire)) return nullptr;
  const Place place = PlaceOf(number - 1);
  return chunks_[place.chunk].load(std::memory_order_relaxed)[place.index].get();
}

}  // namespace ringd::client
