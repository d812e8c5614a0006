#include "client/core/local_operations.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/core/relax.h"
#include "proto/reduce/combine.h"

namespace ringd::client {
namespace {

// Every sleep is bounded, so that a lost wake-up or a silent end delays and never hangs.
constexpr std::chrono::milliseconds kLongestSleep{100};
// Nobody rings for room.
constexpr std::chrono::milliseconds kRoomSleep{1};
// Looks before the clock is read for the first time: about two microseconds.
constexpr int kQuickLooks = 128;
// Looks between two readings of the clock.
constexpr int kLooksPerClock = 64;
// How far beyond the operation that is waited for work is looked for.
constexpr std::uint64_t kLookAhead = 32;

// The least worth a claim of its own.
constexpr std::uint64_t kLeastChunkBytes = 16 * 1024;
constexpr std::uint64_t kChunkAlignment = 64;
// From this size on, all members' bytes counted, results would only push each other out of the caches.
constexpr std::uint64_t kStreamFromBytes = std::uint64_t{4} << 20;

// What follows from the bytes alone, so that all members agree.
std::uint64_t ChunkBytes(std::uint64_t bytes) noexcept {
  const std::uint64_t least = (bytes + kMaxChunks - 1) / kMaxChunks;
  const std::uint64_t aligned = (least + kChunkAlignment - 1) / kChunkAlignment * kChunkAlignment;
  return std::max(aligned, kLeastChunkBytes);
}

std::uint32_t ChunkCount(std::uint64_t bytes) noexcept {
  const std::uint64_t chunk = ChunkBytes(bytes);
  return static_cast<std::uint32_t>((bytes + chunk - 1) / chunk);
}

Scaling PostscaleOf(const TensorDescription& tensor, std::uint32_t member_count) noexcept {
  Scaling scaling;
  scaling.factor = tensor.postscale;
  scaling.divisor = tensor.op == ReduceOp::kAverage ? member_count : 1;
  return scaling;
}

}  // namespace

LocalOperations::LocalOperations(const JobMemory& memory, std::uint32_t capacity,
                                 SessionState& state, std::chrono::nanoseconds spin_budget)
    : memory_(memory),
      segment_(memory.segment()),
      self_(memory.self()),
      member_count_(memory.segment().member_count()),
      capacity_(capacity),
      state_(state),
      spin_(spin_budget),
      own_state_(segment_.Member(self_)),
      table_mask_(capacity - 1),
      table_(capacity) {}

LocalOperations::~LocalOperations() = default;

// ---- submitting

SubmitResult LocalOperations::SubmitInline(Registration& registration, const void* source,
                                           void* destination, std::uint64_t& sequence) {
  OperationEnd end;
  end.registration = &registration;
  // The root of a broadcast gets its own values, too, unless they are there already.
  const bool writes = registration.receives || destination != source;
  return Post(registration, end, registration.sends ? source : nullptr,
              writes ? destination : nullptr, 0, 0, sequence);
}

SubmitResult LocalOperations::TrySubmit(Submission& record, const OperationEnd& end) {
  return Post(*end.registration, end, nullptr, nullptr, record.source_offset,
              record.destination_offset, record.sequence);
}

SubmitResult LocalOperations::Post(Registration& registration, const OperationEnd& end,
                                   const void* inline_source, void* inline_destination,
                                   std::uint64_t source_offset, std::uint64_t destination_offset,
                                   std::uint64_t& sequence) {
  if (!state_.alive()) return SubmitResult::kEnded;
  const std::uint32_t number = registration.numbers.tensor;
  const bool is_inline = IsInline(registration);
  std::uint64_t occurrence = 0;
  Operation* operation = nullptr;
  {
    MutexLock lock(mutex_);
    Tensor& tensor = TensorOf(number);
    if (in_flight_.load(std::memory_order_relaxed) >= capacity_ || !HasRoom(tensor)) {
      return SubmitResult::kFull;
    }
    occurrence = tensor.posted;
    sequence = next_sequence_++;
    operation = &TakeOperation(sequence);
    operation->tensor.store(&tensor, std::memory_order_relaxed);
    operation->occurrence.store(occurrence, std::memory_order_relaxed);
    operation->chunk_count.store(is_inline ? 0 : ChunkCount(registration.bytes),
                                 std::memory_order_relaxed);
    operation->registration = &registration;
    operation->inline_destination = inline_destination;
    operation->end = end;
    operation->word.store(Word(sequence, kInFlight), std::memory_order_release);
    tensor.pending[occurrence % kOccurrencesInFlight] = operation;
    tensor.posted = occurrence + 1;

    SubmissionSlot& slot = segment_.Slot(number, self_, occurrence);
    slot.source_offset = source_offset;
    slot.destination_offset = destination_offset;
    slot.meta_id = registration.numbers.meta;
    if (is_inline && inline_source != nullptr) {
      std::memcpy(slot.data, inline_source, registration.bytes);
    }
    // From here on the others may read the slot and the tensor.
    slot.occurrence.store(occurrence + 1, std::memory_order_release);
    own_state_.posted.store(own_state_.posted.load(std::memory_order_relaxed) + 1,
                            std::memory_order_relaxed);
    in_flight_.store(in_flight_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  // Pairs with the fence of a sleeping waiter: our slot before, the looks at the others after.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (HasArrived(number, occurrence)) {
    if (!is_inline && registration.bytes <= kAtOnceBytes) Advance(*operation, sequence);
    RingOthers();
  }
  return SubmitResult::kOk;
}

LocalOperations::Tensor& LocalOperations::TensorOf(std::uint32_t number) {
  if (number >= tensors_.size()) tensors_.resize(number + 1);
  std::unique_ptr<Tensor>& tensor = tensors_[number];
  if (tensor == nullptr) tensor = std::make_unique<Tensor>(number);
  return *tensor;
}

bool LocalOperations::HasRoom(Tensor& tensor) {
  if (tensor.posted < tensor.room_until) return true;
  EndInOrder(tensor);
  std::uint64_t ended = tensor.ended.load(std::memory_order_relaxed);
  for (std::uint32_t m = 0; m < member_count_; ++m) {
    if (m == self_) continue;
    ended = std::min(ended, segment_.Ended(tensor.number, m).load(std::memory_order_acquire));
  }
  tensor.room_until = ended + kOccurrencesInFlight;
  return tensor.posted < tensor.room_until;
}

LocalOperations::Operation& LocalOperations::TakeOperation(std::uint64_t sequence) {
  if (free_.empty()) free_.push_back(&operations_.emplace_back());
  Operation* const operation = free_.back();
  free_.pop_back();
  std::atomic<Operation*>& place = table_[sequence & table_mask_];
  if (Operation* const before = place.load(std::memory_order_relaxed); before != nullptr) {
    stragglers_.emplace(before->word.load(std::memory_order_relaxed) >> 2, before);
  }
  place.store(operation, std::memory_order_release);
  return *operation;
}

LocalOperations::Operation* LocalOperations::Find(std::uint64_t sequence) {
  Operation* const operation = table_[sequence & table_mask_].load(std::memory_order_acquire);
  if (operation != nullptr) {
    const std::uint64_t word = operation->word.load(std::memory_order_acquire);
    if (word >> 2 == sequence && (word & 3) != kFree) return operation;
  }
  MutexLock lock(mutex_);
  return FindLocked(sequence);
}

LocalOperations::Operation* LocalOperations::FindLocked(std::uint64_t sequence) {
  Operation* const operation = table_[sequence & table_mask_].load(std::memory_order_relaxed);
  if (operation != nullptr) {
    const std::uint64_t word = operation->word.load(std::memory_order_relaxed);
    if (word >> 2 == sequence && (word & 3) != kFree) return operation;
  }
  const auto straggler = stragglers_.find(sequence);
  return straggler == stragglers_.end() ? nullptr : straggler->second;
}

// ---- carrying out

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
  std::optional<Chunk> chunk;
  {
    MutexLock lock(mutex_);
    if (operation.word.load(std::memory_order_relaxed) != Word(sequence, kInFlight)) return false;
    Tensor& tensor = *operation.tensor.load(std::memory_order_relaxed);
    if (EndInOrder(tensor)) return true;
    chunk = Claim(tensor);
    if (!chunk.has_value()) chunk = ClaimLater(sequence);
  }
  if (!chunk.has_value()) return false;
  Reduce(*chunk);
  return true;
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

namespace {

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
  CombineContributions(description.data_type, description.op, description.prescale, sources.span(),
                       destinations, description.element_count,
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
    const Operation* const operation =
        table_[later & table_mask_].load(std::memory_order_relaxed);
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
      state_.Lose(absl::InternalError(
          absl::StrCat("rank ", segment_.Member(m).rank, " broke the protocol: its tensor '",
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
    CombineContributions(description.data_type, description.op, description.prescale,
                         sources.span(), destinations.span(), elements,
                         PostscaleOf(description, member_count_), streaming);
  }
  own_state_.reducing.store(0, std::memory_order_relaxed);
  ChunkClaims claims(segment_.Tensor(chunk.tensor), chunk.occurrence, chunk.chunk_count);
  if (!claims.Done(chunk.chunk)) return;
  std::atomic_thread_fence(std::memory_order_seq_cst);  // as in Post
  RingOthers();
}

// After a fence that stands behind what was published.
void LocalOperations::RingOthers() noexcept {
  for (std::uint32_t m = 0; m < member_count_; ++m) {
    Doorbell& doorbell = segment_.Member(m).doorbell;
    if (m != self_ && doorbell.sleepers.load(std::memory_order_relaxed) != 0) doorbell.Ring();
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

// ---- waiting

WaitResult LocalOperations::Look(const Operation& operation,
                                 std::uint64_t sequence) const noexcept {
  const std::uint64_t word = operation.word.load(std::memory_order_acquire);
  if (word == Word(sequence, kDone)) return WaitResult::kDone;
  return word == Word(sequence, kInFlight) ? WaitResult::kTimeout : WaitResult::kUnknown;
}

// Calls work() again and again, which says whether it found something to do, until done(), the end of the
// context, or `deadline`: false. Spins first, then sleeps at most `longest_sleep` at a time.
template <typename Done, typename Work>
bool LocalOperations::WaitUntil(Done done, Work work, std::chrono::nanoseconds longest_sleep,
                                Clock::time_point deadline) {
  // The common case costs no clock and tells nobody.
  const int quick_looks = spin_.enabled() ? kQuickLooks : 1;
  for (int i = 0; i < quick_looks; ++i) {
    work();
    if (done()) return true;
    Relax();
  }
  struct Presence {
    explicit Presence(std::atomic<std::uint32_t>& count) : count_(count) { ++count_; }
    ~Presence() { --count_; }
    std::atomic<std::uint32_t>& count_;
  } presence(waiters_);

  const std::chrono::nanoseconds budget = spin_.NextBudget();
  if (budget.count() > 0) {
    Clock::time_point spin_end = std::min(Clock::now() + budget, deadline);
    do {
      bool worked = false;
      for (int i = 0; i < kLooksPerClock; ++i) {
        worked = work() || worked;
        if (done()) {
          spin_.Learn(true);
          return true;
        }
        Relax();
      }
      if (!state_.alive()) return false;
      if (worked) spin_end = std::min(Clock::now() + budget, deadline);
      ::sched_yield();
    } while (Clock::now() < spin_end);
    spin_.Learn(false);
  }
  for (;;) {
    while (work()) {
    }
    if (done()) return true;
    const Clock::time_point now = Clock::now();
    if (!state_.alive() || now >= deadline) return false;
    own_state_.doorbell.Wait(std::min<std::chrono::nanoseconds>(longest_sleep, deadline - now),
                             [&] { return work() || done() || !state_.alive(); });
  }
}

WaitResult LocalOperations::Wait(std::uint64_t sequence, Clock::time_point deadline) {
  Operation* const operation = Find(sequence);
  if (operation == nullptr) return WaitResult::kUnknown;
  WaitResult result = WaitResult::kTimeout;
  const auto done = [&] {
    result = Look(*operation, sequence);
    return result != WaitResult::kTimeout;
  };
  const auto work = [&] {
    if (Look(*operation, sequence) != WaitResult::kTimeout || !MayAdvance(*operation)) return false;
    return Advance(*operation, sequence);
  };
  if (done() || WaitUntil(done, work, kLongestSleep, deadline)) return result;
  if (state_.alive()) return WaitResult::kTimeout;
  Quieten(*operation);
  work();  // It may have come to its end after all.
  return done() ? result : WaitResult::kEnded;
}

WaitResult LocalOperations::Test(std::uint64_t sequence) {
  Operation* const operation = Find(sequence);
  if (operation == nullptr) return WaitResult::kUnknown;
  if (MayAdvance(*operation)) Advance(*operation, sequence);
  const WaitResult result = Look(*operation, sequence);
  return result == WaitResult::kTimeout && !state_.alive() ? WaitResult::kEnded : result;
}

bool LocalOperations::WaitForRoom(const OperationEnd& end) {
  const std::uint32_t number = end.registration->numbers.tensor;
  const auto done = [&] {
    MutexLock lock(mutex_);
    return in_flight_.load(std::memory_order_relaxed) < capacity_ && HasRoom(TensorOf(number));
  };
  // The oldest operations end here, too: nobody else may be waiting for them.
  std::uint64_t oldest = 0;
  const auto work = [&] {
    Operation* operation = nullptr;
    {
      MutexLock lock(mutex_);
      Tensor& tensor = TensorOf(number);
      const std::uint64_t head = tensor.ended.load(std::memory_order_relaxed);
      if (head < tensor.posted) {
        operation = tensor.pending[head % kOccurrencesInFlight];
      } else {
        operation = OldestInFlight(oldest);
      }
      if (operation == nullptr) return false;
      oldest = operation->word.load(std::memory_order_relaxed) >> 2;
    }
    return MayAdvance(*operation) && Advance(*operation, oldest);
  };
  return done() || WaitUntil(done, work, kRoomSleep, Clock::time_point::max());
}

LocalOperations::Operation* LocalOperations::OldestInFlight(std::uint64_t from) {
  if (next_sequence_ > capacity_) from = std::max(from, next_sequence_ - capacity_);
  for (std::uint64_t sequence = from; sequence < next_sequence_; ++sequence) {
    Operation* const operation = table_[sequence & table_mask_].load(std::memory_order_relaxed);
    if (operation != nullptr &&
        operation->word.load(std::memory_order_relaxed) == Word(sequence, kInFlight)) {
      return operation;
    }
  }
  return nullptr;
}

bool LocalOperations::Consume(std::uint64_t sequence, OperationOutcome& outcome,
                              OperationEnd& end) {
  MutexLock lock(mutex_);
  Operation* const operation = FindLocked(sequence);
  if (operation == nullptr) return false;
  if ((operation->word.load(std::memory_order_relaxed) & 3) == kInFlight) {
    // The context has ended: the operation stays pending for its tensor, and is used no more.
    outcome = {};
    end = operation->end;
    operation->word.store(Word(sequence, kFree), std::memory_order_release);
    in_flight_.store(in_flight_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
    return true;
  }
  outcome = std::move(operation->outcome);
  operation->outcome = {};
  end = operation->end;
  operation->word.store(Word(sequence, kFree), std::memory_order_release);
  std::atomic<Operation*>& place = table_[sequence & table_mask_];
  if (place.load(std::memory_order_relaxed) == operation) {
    place.store(nullptr, std::memory_order_relaxed);
  } else {
    stragglers_.erase(sequence);
  }
  free_.push_back(operation);
  return true;
}

void LocalOperations::WakeAll() noexcept { own_state_.doorbell.Ring(); }

}  // namespace ringd::client
