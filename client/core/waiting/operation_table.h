// Operations of one queue by their numbers, from submission until they are taken out.
#ifndef RINGD_CLIENT_CORE_WAITING_OPERATION_TABLE_H_
#define RINGD_CLIENT_CORE_WAITING_OPERATION_TABLE_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "client/core/waiting/operation_queue.h"

namespace ringd::client {

// What an entry begins with. A queue's has what it needs besides, and what the lock guards: `end`,
// an OperationEnd, and `outcome`, an OperationOutcome.
struct OperationEntry {
  // Of a straggler; else its place has it.
  std::atomic<std::uint64_t> word{0};
  std::atomic<std::uint64_t> sequence{0};  // stands while its operation is in flight
};

// The part of a table that may be looked at without the queue's lock: numbers that differ by the
// capacity share a place.
//
// Thread safety: any thread. The release store of kDone pairs with the acquire load of who looks
//   without the lock.
template <typename Entry>
class OperationPlaces : private OperationWords {
 public:
  // A power of two.
  explicit OperationPlaces(std::uint32_t capacity) : words_(capacity), entries_(capacity) {}

  std::size_t capacity() const noexcept { return words_.size(); }

  // The first one that may be at its place when `next` is the next new number: those in flight
  // before it are stragglers.
  std::uint64_t FirstOf(std::uint64_t next) const noexcept {
    return next - std::min<std::uint64_t>(next, capacity());
  }

  // The word of the latest operation that has this place. Words stand side by side, so that whoever
  // takes a step's operations out touches few cache lines.
  std::uint64_t WordAt(std::uint64_t sequence,
                       std::memory_order order = std::memory_order_relaxed) const noexcept {
    return words_[sequence & mask()].load(order);
  }
  // Whose it is; null: nobody's.
  Entry* EntryAt(std::uint64_t sequence,
                 std::memory_order order = std::memory_order_relaxed) const noexcept {
    return entries_[sequence & mask()].load(order);
  }
  // The operation's entry, if it is at its place; null: look again with the lock.
  Entry* FindQuickly(std::uint64_t sequence) const noexcept {
    Entry* const entry = EntryAt(sequence, std::memory_order_acquire);
    const bool is_it = entry != nullptr &&
                       entry->sequence.load(std::memory_order_relaxed) == sequence &&
                       ResultOf(WordOf(*entry, sequence), sequence) != WaitResult::kUnknown;
    return is_it ? entry : nullptr;
  }
  // The operation's word, at its place or as a straggler's.
  std::uint64_t WordOf(const Entry& entry, std::uint64_t sequence) const noexcept {
    const std::uint64_t word = WordAt(sequence, std::memory_order_acquire);
    return SequenceOf(word) == sequence ? word : entry.word.load(std::memory_order_acquire);
  }

 private:
  template <typename>
  friend class OperationTable;

  std::uint64_t mask() const noexcept { return words_.size() - 1; }

  std::vector<std::atomic<std::uint64_t>> words_;
  std::vector<std::atomic<Entry*>> entries_;
};

// Every operation has an entry, found by its number. Entries are never freed, and used again, the
// latest first. The rare operation that is still there when its place is needed again becomes a
// straggler, and moves to a map.
//
// Thread safety: the queue's lock.
// Ownership: of the entries; borrows the places, which must outlive it.
template <typename Entry>
class OperationTable : private OperationWords {
 public:
  explicit OperationTable(OperationPlaces<Entry>& places) : places_(places) {}

  // An entry for a new operation, at its place, whose word the caller writes next (SetWordAt). May
  // allocate.
  Entry& Take(std::uint64_t sequence) {
    if (free_.empty()) free_.push_back(&all_.emplace_back());
    Entry* const entry = free_.back();
    free_.pop_back();
    std::atomic<Entry*>& place = places_.entries_[sequence & places_.mask()];
    if (Entry* const before = place.load(std::memory_order_relaxed); before != nullptr) {
      // Who sees the place with its next word finds the one before there.
      const std::uint64_t word = places_.WordAt(sequence);
      before->word.store(word, std::memory_order_release);
      const std::uint64_t straggler = before->sequence.load(std::memory_order_relaxed);
      stragglers_.emplace(straggler, before);
      if (IsInFlight(word, straggler)) stragglers_in_flight_.emplace(straggler, before);
    }
    entry->sequence.store(sequence, std::memory_order_relaxed);
    place.store(entry, std::memory_order_release);
    return *entry;
  }
  void SetWordAt(std::uint64_t word) noexcept {
    places_.words_[SequenceOf(word) & places_.mask()].store(word, std::memory_order_release);
  }

  // Null if there is no such operation.
  Entry* Find(std::uint64_t sequence) {
    if (ResultOf(places_.WordAt(sequence), sequence) != WaitResult::kUnknown) {
      return places_.EntryAt(sequence);
    }
    const auto straggler = stragglers_.find(sequence);
    return straggler == stragglers_.end() ? nullptr : straggler->second;
  }
  // Of one that was found.
  void SetWord(Entry& entry, std::uint64_t word) noexcept {
    if (places_.EntryAt(SequenceOf(word)) == &entry) {
      SetWordAt(word);
    } else {
      entry.word.store(word, std::memory_order_release);
      if (StateOf(word) != kInFlight) stragglers_in_flight_.erase(SequenceOf(word));
    }
  }
  // Takes one out that was found.
  void Free(Entry& entry, std::uint64_t sequence) {
    SetWord(entry, Word(sequence, kFree));
    if (places_.EntryAt(sequence) == &entry) {
      ReleasePlace(sequence);
    } else {
      stragglers_.erase(sequence);
      free_.push_back(&entry);
    }
  }

  // Stragglers that have not ended, by their numbers.
  const std::map<std::uint64_t, Entry*>& stragglers_in_flight() const noexcept {
    return stragglers_in_flight_;
  }

  // Takes out the first so many of `sequences` that are plain, done, and in their places.
  std::size_t ConsumePlain(std::span<const std::uint64_t> sequences) {
    std::size_t count = 0;
    for (; count < sequences.size(); ++count) {
      const std::uint64_t sequence = sequences[count];
      const std::uint64_t seen = places_.WordAt(sequence);
      // Numbers that no operation has may be among them, longer than a word's.
      if (SequenceOf(seen) != sequence || StateOf(seen) != kDone || !IsPlain(seen)) break;
      SetWordAt(Word(sequence, kFree));
      ReleasePlace(sequence);
    }
    return count;
  }
  // OperationQueue::ConsumeSucceeded. `may_take(entry)`: false of one that stays for now;
  // `end_of(entry)`: what remains to be done for it.
  template <typename MayTake, typename EndOf>
  std::size_t ConsumeSucceeded(std::span<const std::uint64_t> sequences,
                               std::vector<OperationEnd>& ends, MayTake may_take, EndOf end_of) {
    std::size_t count = 0;
    for (;; ++count) {
      count += ConsumePlain(sequences.subspan(count));
      if (count == sequences.size()) break;
      const std::uint64_t sequence = sequences[count];
      Entry* const entry = Find(sequence);
      if (entry == nullptr) break;
      const std::uint64_t word = places_.WordOf(*entry, sequence);
      if (IsInFlight(word, sequence)) break;
      if (!IsPlain(word)) {
        if (entry->outcome.status != 0 || !may_take(*entry)) break;
        entry->outcome.completed = false;
        ends.push_back(end_of(*entry));
      }
      Free(*entry, sequence);
    }
    return count;
  }

  // `visit(entry, word)` for all operations that have not been taken out. Takes as long as the
  // table is.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (std::uint64_t place = 0; place < places_.capacity(); ++place) {
      const std::uint64_t word = places_.WordAt(place);
      if (StateOf(word) != kFree) visit(*places_.EntryAt(place), word);
    }
    for (const auto& [sequence, straggler] : stragglers_) {
      visit(*straggler, straggler->word.load(std::memory_order_acquire));
    }
  }

  // One of these of which an operation has not been taken out; null: there is none.
  const Registration* FindUsed(const std::unordered_set<const Registration*>& registrations) const {
    const Registration* used = nullptr;
    ForEach([&](const Entry& entry, std::uint64_t /*word*/) {
      if (registrations.contains(entry.end.registration)) used = entry.end.registration;
    });
    return used;
  }

 private:
  void ReleasePlace(std::uint64_t sequence) {
    std::atomic<Entry*>& place = places_.entries_[sequence & places_.mask()];
    free_.push_back(place.load(std::memory_order_relaxed));
    place.store(nullptr, std::memory_order_relaxed);
  }

  OperationPlaces<Entry>& places_;
  std::deque<Entry> all_;
  std::vector<Entry*> free_;
  std::unordered_map<std::uint64_t, Entry*> stragglers_;
  std::map<std::uint64_t, Entry*> stragglers_in_flight_;
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_WAITING_OPERATION_TABLE_H_
