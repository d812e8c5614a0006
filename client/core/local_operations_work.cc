// LocalOperations' work: finding out what has arrived, ending it, and reducing chunks.
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/core/local_chunks.h"
#include "client/core/local_operations.h"
#include "proto/reduce/combine.h"

namespace ringd::client {
namespace {

// How far beyond the operation that is waited for work is looked for.
constexpr std::uint64_t kLookAhead = 32;
// From this size on, all members' bytes counted, results would only push each other out of the caches.
constexpr std::uint64_t kStreamFromBytes = std::uint64_t{4} << 20;

Scaling PostscaleOf(const TensorDescription& tensor, std::uint32_t member_count) noexcept {
  Scaling scaling;
  scaling.factor = tensor.postscale;
  scaling.divisor = tensor.op == ReduceOp::kAverage ? member_count : 1;
  return scaling;
}

// Pointers to one thing of each member, without allocation for the usual number of members.
template <typename Pointer>
class PerMember {
 public:
  explicit PerMember(std::size_t count) : count_(count) {
    if (count > kUsual) many_.resize(count);
  }
  Pointer& operator[](std::size_t i) noexcept { return data()[i]; }
  std::span<const Pointer> span() noexcept { return {data(), count_}; }

 private:
  static constexpr std::size_t kUsual = 16;
  Pointer* data() noexcept { return count_ > kUsual ? many_.data() : few_.data(); }
  const std::size_t count_;
  std::array<Pointer, kUsual> few_{};
  std::vector<Pointer> many_;
};

}  // namespace

bool LocalOperations::HasArrived(std::uint32_t tensor, std::uint64_t occurrence) const noexcept {
  for (std::uint32_t m = 0; m < member_count_; ++m) {
    const SubmissionSlot& slot = segment_.Slot(tensor, m, occurrence);
    if (slot.occurrence.load(std::memory_order_acquire) != occurrence + 1) return false;
  }
  return true;
}

bool LocalOperations::MayAdvance(const Operation& operation) const noexcept {
  const Tensor& tensor = *operation.tensor.load(std::memory_order_relaxed);
  return HasArrived(tensor.number, tensor.ended.load(std::memory_order_relaxed));
}

bool LocalOperations::Advance(Operation& operation, std::uint64_t sequence) {
  bool ended = false;
  std::optional<Chunk> chunk;
  {
    MutexLock lock(mutex_);
    if (operation.word.load(std::memory_order_relaxed) != Word(sequence, kInFlight)) return false;
    std::tie(ended, chunk) = EndOrClaim(operation, sequence);
  }
  // It may be another thread's operation.
  if (ended && waiters() > 0) own_state_.doorbell.Ring();
  if (chunk.has_value()) Reduce(*chunk);
  return ended || chunk.has_value();
}

bool LocalOperations::WorkInBackground(std::uint64_t& oldest) {
  if (waiters() > 0 || !state_.alive()) return false;
  bool ended = false;
  std::optional<Chunk> chunk;
  {
    MutexLock lock(mutex_);
    const Operation* const operation = OldestInFlight(oldest);
    if (operation == nullptr) {
      oldest = next_sequence_;
      return false;
    }
    oldest = operation->word.load(std::memory_order_relaxed) >> 2;
    std::tie(ended, chunk) = EndOrClaim(*operation, oldest);
  }
  if (ended) own_state_.doorbell.Ring();
  if (chunk.has_value()) Reduce(*chunk);
  return ended || chunk.has_value();
}

std::pair<bool, std::optional<LocalOperations::Chunk>> LocalOperations::EndOrClaim(
    const Operation& operation, std::uint64_t sequence) {
  Tensor& tensor = *operation.tensor.load(std::memory_order_relaxed);
  if (EndInOrder(tensor)) return {true, std::nullopt};
  std::optional<Chunk> chunk = Claim(tensor);
  if (!chunk.has_value()) chunk = ClaimLater(sequence);
  return {false, chunk};
}

bool LocalOperations::EndInOrder(Tensor& tensor) {
  for (bool ended = false;; ended = true) {
    const std::uint64_t head = tensor.ended.load(std::memory_order_relaxed);
    if (head == tensor.posted) return ended;
    if (!TryEnd(tensor, *tensor.pending[head % kOccurrencesInFlight])) return ended;
  }
}

bool LocalOperations::TryEnd(Tensor& tensor, Operation& operation) {
  const std::uint64_t occurrence = operation.occurrence.load(std::memory_order_relaxed);
  if (!HasArrived(tensor.number, occurrence)) return false;
  const std::uint32_t chunks = operation.chunk_count.load(std::memory_order_relaxed);
  OperationOutcome& outcome = operation.outcome;
  if (Conflicts(tensor, occurrence, &outcome.conflicting_metas)) {
    outcome.status = static_cast<std::int32_t>(absl::StatusCode::kInvalidArgument);
  } else if (chunks == 0) {
    CombineInline(tensor, operation);
  } else if (!ChunkClaims(segment_.Tensor(tensor.number), occurrence, chunks).Finished()) {
    return false;
  }
  static_cast<void>(chunks_reduced_.load(std::memory_order_acquire));
  outcome.completed = true;
  const auto add = [](std::atomic<std::uint64_t>& counter, std::uint64_t amount) {
    counter.store(counter.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  };
  if (outcome.status == 0) {
    add(own_state_.bytes, operation.registration->bytes);
  } else {
    add(own_state_.failed, 1);
  }
  add(own_state_.ended, 1);
  tensor.ended.store(occurrence + 1, std::memory_order_relaxed);
  segment_.Ended(tensor.number, self_).store(occurrence + 1, std::memory_order_release);
  in_flight_.store(in_flight_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
  const std::uint64_t sequence = operation.word.load(std::memory_order_relaxed) >> 2;
  operation.word.store(Word(sequence, kDone), std::memory_order_release);
  return true;
}

bool LocalOperations::Conflicts(const Tensor& tensor, std::uint64_t occurrence,
                                std::vector<std::uint32_t>* metas) const {
  const std::uint32_t own = segment_.Slot(tensor.number, self_, occurrence).meta_id;
  bool conflict = false;
  for (std::uint32_t m = 0; m < member_count_; ++m) {
    conflict = conflict || segment_.Slot(tensor.number, m, occurrence).meta_id != own;
  }
  if (conflict && metas != nullptr) {
    for (std::uint32_t m = 0; m < member_count_; ++m) {
      metas->push_back(segment_.Slot(tensor.number, m, occurrence).meta_id);
    }
  }
  return conflict;
}

std::uint32_t LocalOperations::MemberOf(std::int32_t rank) const noexcept {
  for (std::uint32_t m = 0; m < member_count_; ++m) {
    if (segment_.Member(m).rank == rank) return m;
  }
  return 0;
}

void LocalOperations::CombineInline(const Tensor& tensor, const Operation& operation) const {
  const TensorDescription& description = operation.registration->description;
  void* const destination = operation.inline_destination;
  if (destination == nullptr) return;
  const std::uint64_t occurrence = operation.occurrence.load(std::memory_order_relaxed);
  const auto data = [&](std::uint32_t m) -> const void* {
    return segment_.Slot(tensor.number, m, occurrence).data;
  };
  if (description.kind == CollectiveKind::kBroadcast) {
    std::memcpy(destination, data(MemberOf(description.root_rank)), operation.registration->bytes);
    return;
  }
  PerMember<const void*> sources(member_count_);
  for (std::uint32_t m = 0; m < member_count_; ++m) sources[m] = data(m);
  void* const destinations[] = {destination};
  CombineContributions(description.data_type, description.op, description.prescale, nullptr,
                       sources.span(), destinations, description.element_count,
                       PostscaleOf(description, member_count_), Streaming::kCached);
}

std::optional<LocalOperations::Chunk> LocalOperations::Claim(Tensor& tensor) {
  const std::uint64_t head = tensor.ended.load(std::memory_order_relaxed);
  if (head == tensor.posted || !HasArrived(tensor.number, head)) return std::nullopt;
  const Operation& operation = *tensor.pending[head % kOccurrencesInFlight];
  const std::uint32_t chunks = operation.chunk_count.load(std::memory_order_relaxed);
  if (chunks == 0 || Conflicts(tensor, head, nullptr)) return std::nullopt;
  ChunkClaims claims(segment_.Tensor(tensor.number), head, chunks);
  // Each member begins in a part of its own, so that two rarely meet and caches keep what they have.
  const int claimed = claims.Claim(self_ * chunks / member_count_);
  if (claimed == kNoChunk) return std::nullopt;
  return Chunk{operation.registration, tensor.number, head, chunks, claimed};
}

std::optional<LocalOperations::Chunk> LocalOperations::ClaimLater(std::uint64_t sequence) {
  const std::uint64_t end = std::min(next_sequence_, sequence + 1 + kLookAhead);
  for (std::uint64_t later = sequence + 1; later < end; ++later) {
    const Operation* const operation = table_[later & table_mask_].load(std::memory_order_relaxed);
    if (operation == nullptr ||
        operation->word.load(std::memory_order_relaxed) != Word(later, kInFlight)) {
      continue;
    }
    std::optional<Chunk> chunk = Claim(*operation->tensor.load(std::memory_order_relaxed));
    if (chunk.has_value()) return chunk;
  }
  return std::nullopt;
}

void LocalOperations::Reduce(const Chunk& chunk) {
  const TensorDescription& description = chunk.registration->description;
  const std::uint64_t bytes = chunk.registration->bytes;
  const std::uint64_t chunk_bytes = ChunkBytes(bytes);
  const std::uint64_t begin = chunk_bytes * static_cast<std::uint64_t>(chunk.chunk);
  const std::uint64_t length = std::min(chunk_bytes, bytes - begin);
  PerMember<const void*> sources(member_count_);
  PerMember<void*> destinations(member_count_);
  for (std::uint32_t m = 0; m < member_count_; ++m) {
    const SubmissionSlot& slot = segment_.Slot(chunk.tensor, m, chunk.occurrence);
    const JobMemory::MemberArena& arena = memory_.arenas()[m];
    const std::uint64_t from = slot.source_offset;
    const std::uint64_t to = slot.destination_offset;
    if (bytes > arena.bytes || from > arena.bytes - bytes || to > arena.bytes - bytes) {
      state_.Lose(absl::InternalError(absl::StrCat("rank ", segment_.Member(m).rank,
                                                   " broke the protocol: its tensor '",
                                                   description.name, "' lies outside its arena")));
      return;
    }
    sources[m] = arena.base + from + begin;
    destinations[m] = arena.base + to + begin;
  }
  own_state_.reducing.store(chunk.tensor + 1, std::memory_order_relaxed);
  const std::uint64_t elements = length / SizeOf(description.data_type);
  const Streaming streaming =
      bytes * member_count_ >= kStreamFromBytes ? Streaming::kPast : Streaming::kCached;
  if (description.kind == CollectiveKind::kBroadcast) {
    const void* const root = sources[MemberOf(description.root_rank)];
    for (void* const destination : destinations.span()) {
      if (destination == root) continue;
      CopyScaled(description.data_type, destination, root, elements, {}, streaming);
    }
  } else {
    CombineContributions(description.data_type, description.op, description.prescale, nullptr,
                         sources.span(), destinations.span(), elements,
                         PostscaleOf(description, member_count_), streaming);
  }
  own_state_.reducing.store(0, std::memory_order_relaxed);
  chunks_reduced_.fetch_add(1, std::memory_order_release);
  ChunkClaims claims(segment_.Tensor(chunk.tensor), chunk.occurrence, chunk.chunk_count);
  if (!claims.Done(chunk.chunk)) return;
  std::atomic_thread_fence(std::memory_order_seq_cst);  // as in Post
  RingSleepers();
}

// Of this process, too: another of its threads may wait for what this one did. After a fence that stands
// behind what was published.
void LocalOperations::RingSleepers() noexcept {
  for (std::uint32_t m = 0; m < member_count_; ++m) {
    Doorbell& doorbell = segment_.Member(m).doorbell;
    if (doorbell.sleepers.load(std::memory_order_relaxed) != 0) doorbell.Ring();
  }
}

void LocalOperations::Quieten(Operation& operation) {
  const Tensor& tensor = *operation.tensor.load(std::memory_order_relaxed);
  const std::uint64_t occurrence = operation.occurrence.load(std::memory_order_relaxed);
  const std::uint32_t chunks = operation.chunk_count.load(std::memory_order_relaxed);
  if (chunks == 0 || tensor.ended.load(std::memory_order_relaxed) != occurrence ||
      !HasArrived(tensor.number, occurrence)) {
    return;
  }
  ChunkClaims claims(segment_.Tensor(tensor.number), occurrence, chunks);
  const Clock::time_point deadline = Clock::now() + kQuietDeadline;
  while (!claims.Finished() && !claims.Stop() && Clock::now() < deadline) ::sched_yield();
}

}  // namespace ringd::client
