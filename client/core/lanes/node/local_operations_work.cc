// LocalOperations' work: finding out what has arrived, ending it, and reducing chunks.
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/core/lanes/node/local_operations.h"
#include "client/core/tensors/local_chunks.h"
#include "client/core/tensors/ordered_descriptions.h"
#include "client/core/waiting/relax.h"
#include "proto/base/per_member.h"
#include "proto/operations/operation_traits.h"
#include "proto/reduce/reduce.h"
#include "proto/shm/ordered_operation.h"

namespace ringd::client {
namespace {

// How far beyond the operation that is waited for work is looked for.
constexpr std::uint64_t kLookAhead = 32;
// Once others have taken all of kAllQuietDeadline: a chunk of a rank that lives.
constexpr std::chrono::milliseconds kShortQuiet{2};

}  // namespace

bool LocalOperations::MayAdvance(const Operation& operation) const noexcept {
  const Tensor& tensor = *operation.tensor.load(std::memory_order_relaxed);
  return HasArrived(tensor.number, tensor.ended.load(std::memory_order_relaxed));
}

bool LocalOperations::Advance(Operation& operation, std::uint64_t sequence, Foreign foreign,
                              bool* taken) {
  bool ended = false;
  std::optional<Chunk> chunk;
  {
    MutexLock lock(mutex_);
    if (!IsInFlight(places_.WordOf(operation, sequence), sequence)) return false;
    std::tie(ended, chunk) = EndOrClaim(operation, sequence, foreign);
    if (ended) TakeIfPlain(sequence, taken);
  }
  if (chunk.has_value()) ended = Reduce(*chunk, sequence, taken);
  // It may be another thread's operation.
  if (ended && waiters() > 0) own_state_.doorbell.Ring();
  return ended || chunk.has_value();
}

void LocalOperations::TakeIfPlain(std::uint64_t sequence, bool* taken) {
  if (taken == nullptr || table_.ConsumePlain({&sequence, 1}) == 0) return;
  CountConsumed(1);
  *taken = true;
}

bool LocalOperations::WorkFor(Operation& operation, std::uint64_t sequence, Foreign foreign,
                              bool* taken) {
  if (MayAdvance(operation) && Advance(operation, sequence, foreign, taken)) return true;
  return AnyPutOff() &&
         PublishNext(operation.put_off.load(std::memory_order_relaxed) ? sequence : 0);
}

bool LocalOperations::WorkInBackground(std::uint64_t& oldest) {
  if (waiters() > 0 || !state_.alive()) return false;
  bool ended = false;
  std::optional<Chunk> chunk;
  {
    MutexLock lock(mutex_);
    const Operation* operation = OldestInFlight(oldest);
    oldest =
        operation == nullptr ? next_sequence_ : operation->sequence.load(std::memory_order_relaxed);
    // As in WaitForRoom: who only tries to submit, and does not wait, has nobody else.
    const bool is_full = in_flight_.load(std::memory_order_relaxed) >= capacity_;
    if (operation == nullptr || (is_full && !MayAdvance(*operation))) {
      operation = OldestThatMayAdvance(oldest);
    }
    if (operation != nullptr) {
      const std::uint64_t sequence = operation->sequence.load(std::memory_order_relaxed);
      std::tie(ended, chunk) = EndOrClaim(*operation, sequence, Foreign::kTake);
    }
  }
  if (chunk.has_value()) ended = Reduce(*chunk, 0, nullptr);
  if (ended) own_state_.doorbell.Ring();
  return ended || chunk.has_value() || PublishNext(0);
}

std::pair<bool, std::optional<LocalOperations::Chunk>> LocalOperations::EndOrClaim(
    const Operation& operation, std::uint64_t sequence, Foreign foreign) {
  Tensor& tensor = *operation.tensor.load(std::memory_order_relaxed);
  if (EndInOrder(tensor)) return {true, std::nullopt};
  std::optional<Chunk> chunk = Claim(tensor, foreign);
  if (!chunk.has_value()) chunk = ClaimLater(sequence, foreign);
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
  const std::uint64_t sequence = operation.sequence.load(std::memory_order_relaxed);
  // Given up, since the context has ended: its memory is the caller's again.
  if (!IsInFlight(places_.WordOf(operation, sequence), sequence)) return false;
  const std::uint64_t occurrence = operation.occurrence.load(std::memory_order_relaxed);
  // What the shared words say of one that the others can't see yet is rubbish.
  if (occurrence >= tensor.published || !HasArrived(tensor.number, occurrence)) return false;
  // Whatever the shared words say: a thread of this process is at its memory.
  if (operation.own_chunks != 0) return false;
  const std::uint32_t chunks = operation.chunk_count.load(std::memory_order_relaxed);
  OperationOutcome& outcome = operation.outcome;
  if (Conflicts(tensor, occurrence, &outcome.conflicting_metas)) {
    outcome.status = static_cast<std::int32_t>(absl::StatusCode::kInvalidArgument);
    if (operation.registration->ordered != nullptr) {
      outcome.conflicting_metas.clear();
      outcome.text = std::make_shared<const std::string>(DescribeConflict(tensor, operation));
    }
  } else if (chunks == 0) {
    CombineInline(tensor, operation);
  } else if (!ChunkClaims(segment_.Tensor(tensor.number), occurrence, chunks).Finished()) {
    return false;
  } else if (const std::optional<Spoiled> spoiled = SpoiledOf(tensor.number, occurrence)) {
    if (!CauseGraceIsOver(operation)) return false;
    operation.spoiled_since = {};
    outcome.status = static_cast<std::int32_t>(absl::StatusCode::kAborted);
    outcome.text = std::make_shared<const std::string>(Describe(*operation.registration, *spoiled));
  }
  outcome.completed = true;
  CountEnd(tensor, operation);
  if (IsTraced(*operation.registration)) {
    Trace(TraceStage::kCompleted, {tensor.number, occurrence}, TraceTime(*operation.registration),
          operation.registration->bytes, outcome.status);
  }
  in_flight_.store(in_flight_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
  // Wraps around to less.
  if (operation.end.staging_offset != kNoStaging) AddStagedBytes(-operation.registration->bytes);
  const bool plain = outcome.status == 0 && IsPlain(places_.WordOf(operation, sequence));
  table_.SetWord(operation, Word(sequence, kDone, plain));
  return true;
}

void LocalOperations::CountEnd(Tensor& tensor, const Operation& operation) {
  const std::uint64_t occurrence = operation.occurrence.load(std::memory_order_relaxed);
  const auto add = [](std::atomic<std::uint64_t>& counter, std::uint64_t amount) {
    counter.store(counter.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  };
  if (operation.outcome.status == 0) {
    add(own_state_.bytes, operation.registration->bytes);
  } else {
    add(own_state_.failed, 1);
  }
  add(own_state_.ended, 1);
  tensor.ended.store(occurrence + 1, std::memory_order_relaxed);
  segment_.Ended(tensor.number, self_).store(occurrence + 1, std::memory_order_release);
  if (tensor.published > occurrence + 1) {
    in_flight_index_.Move(tensor.in_flight_place, {tensor.number, occurrence + 1});
  } else {
    in_flight_index_.End(std::exchange(tensor.in_flight_place, InFlightIndex::kNoPlace));
  }
}

bool LocalOperations::Conflicts(const Tensor& tensor, std::uint64_t occurrence,
                                std::vector<std::uint32_t>* metas) const {
  const TensorView view = segment_.Of(tensor.number);
  const auto said = [&](std::uint32_t m) { return CopyMetaId(view.Slot(m, occurrence)); };
  const std::uint32_t own = said(self_);
  bool conflict = false;
  for (std::uint32_t m = 0; m < member_count_; ++m) conflict = conflict || said(m) != own;
  const Registration& registration =
      *tensor.pending[occurrence % kOccurrencesInFlight]->registration;
  if (registration.ordered != nullptr && !conflict) {
    for (std::uint32_t m = 0; m < member_count_; ++m) {
      SubmissionSlot& slot = view.Slot(m, occurrence);
      const std::uint64_t count = CopyElementCount(slot, IsInline(registration));
      conflict = conflict || count != registration.element_count;
      conflict = conflict || (registration.is_scaled &&
                              CopyScales(slot) != OrderedDescriptions::ScalesOf(registration));
    }
  }
  if (conflict && metas != nullptr) {
    // What a member may have changed meanwhile is only shown.
    for (std::uint32_t m = 0; m < member_count_; ++m) metas->push_back(said(m));
  }
  return conflict;
}

std::string LocalOperations::DescribeConflict(const Tensor& tensor,
                                              const Operation& operation) const {
  const std::uint64_t occurrence = operation.occurrence.load(std::memory_order_relaxed);
  std::string text =
      absl::StrCat("operation ", OrderedNumberOf(tensor.number, occurrence), " of communicator '",
                   operation.registration->ordered->communicator(), "':");
  struct Said {
    std::optional<OrderedDescription> word;
    OrderedScales scales;
  };
  std::vector<Said> all(member_count_);
  bool same_scales = true;
  for (std::uint32_t m = 0; m < member_count_; ++m) {
    // What a member may have changed meanwhile is only shown.
    const SubmissionSlot& slot = segment_.Slot(tensor.number, m, occurrence);
    all[m].word = OrderedDescription::FromWord(CopyMetaId(slot));
    if (all[m].word.has_value() && all[m].word->is_scaled) all[m].scales = CopyScales(slot);
    same_scales = same_scales && all[m].scales == all[0].scales;
  }
  std::vector<std::string> seen;
  for (std::uint32_t m = 0; m < member_count_; ++m) {
    SubmissionSlot& slot = segment_.Slot(tensor.number, m, occurrence);
    const auto& [word, scales] = all[m];
    std::string said = "what is no operation";
    if (word.has_value()) {
      const OperationTraits& traits = TraitsOf(word->kind);
      said = std::string(Name(word->kind));
      if (traits.combines) absl::StrAppend(&said, " ", Name(word->op));
      if (traits.moves_data) {
        absl::StrAppend(&said, " ", Name(word->data_type), " [",
                        CopyElementCount(slot, word->is_inline), "]");
      }
      if (!same_scales) {
        absl::StrAppend(&said, " prescale ", scales.prescale, " postscale ", scales.postscale);
      }
      if (traits.rooted && word->root_member < member_count_) {
        absl::StrAppend(&said, " root rank ", ranks_[word->root_member]);
      }
    }
    if (std::find(seen.begin(), seen.end(), said) != seen.end()) continue;
    absl::StrAppend(&text, seen.empty() ? " " : ", ", "rank ", ranks_[m], " submitted ", said);
    seen.push_back(std::move(said));
  }
  return text;
}

std::optional<Spoiled> LocalOperations::SpoiledOf(std::uint32_t tensor,
                                                  std::uint64_t occurrence) const noexcept {
  const std::uint64_t word =
      segment_.Tensor(tensor).spoiled[occurrence % kOccurrencesInFlight].load(
          std::memory_order_acquire);
  if (word == 0) return std::nullopt;
  const Spoiled spoiled = Spoiled::FromWord(word);
  return spoiled.occurrence == occurrence ? std::optional(spoiled) : std::nullopt;
}

bool LocalOperations::CauseGraceIsOver(Operation& operation) {
  const Clock::time_point now = Clock::now();
  if (now - last_spoiled_ > kSameCause) first_spoiled_ = now;
  last_spoiled_ = now;
  // Who looks rarely sees each time as if it were the first of a cause.
  if (operation.spoiled_since == Clock::time_point{}) operation.spoiled_since = now;
  return now - std::min(first_spoiled_, operation.spoiled_since) >= kCauseGrace;
}

std::string LocalOperations::Describe(const Registration& registration,
                                      const Spoiled& spoiled) const {
  const std::string who =
      spoiled.member < member_count_ ? absl::StrCat("rank ", ranks_[spoiled.member]) : "a rank";
  const std::string why =
      spoiled.error == 0 ? absl::StrCat(who, " left the job before the others had read its part")
                         : absl::StrCat("the other ranks can't read the memory of ", who,
                                        " any more (", std::strerror(spoiled.error),
                                        "): it must stay as it is until the operation has ended");
  return absl::StrCat("tensor '", registration.description.name, "': ", why);
}

std::uint32_t LocalOperations::MemberOf(std::int32_t rank) const noexcept {
  for (std::uint32_t m = 0; m < member_count_; ++m) {
    if (ranks_[m] == rank) return m;
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
  if (!TraitsOf(description.kind).combines) {
    std::memcpy(destination, data(MemberOf(description.root_rank)), operation.registration->bytes);
    return;
  }
  PerMember<const void*> sources(member_count_);
  for (std::uint32_t m = 0; m < member_count_; ++m) sources[m] = data(m);
  void* const destinations[] = {destination};
  const TensorScaling scaling = ScalingOf(description);
  CombineContributions(description.data_type, description.op, scaling.prescale, nullptr,
                       sources.span(), destinations, description.element_count, scaling.result,
                       Streaming::kCached);
}

std::optional<LocalOperations::Chunk> LocalOperations::Claim(Tensor& tensor, Foreign foreign) {
  if (!state_.alive()) return std::nullopt;
  const std::uint64_t head = tensor.ended.load(std::memory_order_relaxed);
  if (head >= tensor.published || !HasArrived(tensor.number, head)) return std::nullopt;
  Operation& operation = *tensor.pending[head % kOccurrencesInFlight];
  const std::uint32_t chunks = operation.chunk_count.load(std::memory_order_relaxed);
  if (chunks == 0 || Conflicts(tensor, head, nullptr)) return std::nullopt;
  ChunkClaims claims(segment_.Tensor(tensor.number), head, chunks);
  // Each member begins in a part of its own, so that two rarely meet and caches keep what they
  // have.
  const bool leaves = foreign == Foreign::kLeave && operation.end.split_source;
  const int claimed =
      claims.Claim(FirstHomeChunk(self_, member_count_, chunks),
                   leaves ? HomeChunks(self_, member_count_, chunks) : ChunkClaims::kAnyChunk);
  if (claimed == kNoChunk) return std::nullopt;
  ++operation.own_chunks;
  AddReducers(1);
  return Chunk{operation.registration, tensor.number, head, chunks, claimed, &operation};
}

std::optional<LocalOperations::Chunk> LocalOperations::ClaimLater(std::uint64_t sequence,
                                                                  Foreign foreign) {
  const std::uint64_t end = std::min(next_sequence_, sequence + 1 + kLookAhead);
  for (std::uint64_t later = sequence + 1; later < end; ++later) {
    if (!IsInFlight(places_.WordAt(later), later)) continue;
    const Operation* const operation = places_.EntryAt(later);
    std::optional<Chunk> chunk = Claim(*operation->tensor.load(std::memory_order_relaxed), foreign);
    if (chunk.has_value()) return chunk;
  }
  return std::nullopt;
}

// Of this process, too: another of its threads may wait for what this one did. After a fence that
// stands behind what was published.
void LocalOperations::RingSleepers() noexcept {
  for (std::uint32_t m = 0; m < member_count_; ++m) {
    Doorbell& doorbell = segment_.Member(m).doorbell;
    if (doorbell.sleepers.load(std::memory_order_relaxed) != 0) doorbell.Ring();
  }
}

bool LocalOperations::StopReducing() noexcept {
  direct_reads_.Withdraw();
  // Who claims after this sees that the context has ended.
  { const MutexLock lock(mutex_); }
  return reducers_.load(std::memory_order_acquire) == 0;
}

void LocalOperations::GiveUp() noexcept {
  for (GivingWay wait; !StopReducing();) wait.Pause();
}

void LocalOperations::Quieten(Operation& operation) {
  // Without a deadline: these are this process's own threads, and each is about its last chunk, or
  // copy.
  GiveUp();
  // Others write into the staging block only, which is not used again.
  if (operation.end.staging_offset != kNoStaging) return;
  const Tensor& tensor = *operation.tensor.load(std::memory_order_relaxed);
  const std::uint64_t occurrence = operation.occurrence.load(std::memory_order_relaxed);
  if (operation.chunk_count.load(std::memory_order_relaxed) == 0) return;
  // Who leaves in order, while the job goes on, does not keep the others from what is to arrive.
  if (state_.phase() == SessionState::Phase::kClosing && !HasArrived(tensor.number, occurrence)) {
    return;
  }
  const Clock::time_point now = Clock::now();
  Clock::time_point deadline = now + kQuietDeadline;
  if (state_.phase() != SessionState::Phase::kClosing) {
    // Many may have been in flight: who holds one up is dead, mostly, and may hold up others.
    Clock::time_point none{};
    quiet_until_.compare_exchange_strong(none, now + kAllQuietDeadline, std::memory_order_relaxed);
    deadline =
        std::clamp(quiet_until_.load(std::memory_order_relaxed), now + kShortQuiet, deadline);
  }
  // Nothing later begins before what is stopped has finished. It may yet have to arrive: others,
  // who have not heard of the end, would begin it then.
  for (std::uint64_t k = tensor.ended.load(std::memory_order_relaxed); k <= occurrence; ++k) {
    std::uint32_t chunks = 0;
    {
      const MutexLock lock(mutex_);
      if (k >= tensor.published) return;
      const Operation& pending = *tensor.pending[k % kOccurrencesInFlight];
      chunks = pending.chunk_count.load(std::memory_order_relaxed);
    }
    if (chunks == 0) continue;
    ChunkClaims claims(segment_.Tensor(tensor.number), k, chunks);
    while (!claims.Finished() && !claims.Stop() && Clock::now() < deadline) ::sched_yield();
    if (!claims.Finished()) return;
  }
}

}  // namespace ringd::client
