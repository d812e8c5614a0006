#include "client/core/lanes/rank_exchange/unended_operations.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ringd::client {
namespace {

// What finds no room at ringd tries again this often.
constexpr std::chrono::milliseconds kRoomInterval{1};

}  // namespace

UnendedOperations::UnendedOperations(RankExchangeOperations& rank_exchange,
                                     const SessionState& state, Submit submit)
    : rank_exchange_(rank_exchange), state_(state), submit_(std::move(submit)) {}

ringd_operation UnendedOperations::Keep(const RankExchangeStay& stay) {
  MutexLock lock(mutex_);
  Entry& entry = entries_.emplace_back();
  entry.number = kOwnBit | next_++;
  entry.stay = stay;
  under_way_.fetch_add(1, std::memory_order_release);
  return entry.number;
}

void UnendedOperations::End(Entry& entry, Found found) {
  entry.found = std::move(found);
  under_way_.fetch_sub(1, std::memory_order_release);
}

void UnendedOperations::Advance(Entry& entry) {
  if (entry.found.where != Where::kUnderWay) return;
  if (!entry.given_up) {
    switch (rank_exchange_.Look(entry.stay)) {
      case RankExchangeOutcome::kPending:
        // Nobody ends it after the job's failure.
        if (!state_.alive()) End(entry, {Where::kEnded, state_.status(), 0});
        return;
      case RankExchangeOutcome::kCompleted:
        return End(entry, {Where::kEnded, absl::OkStatus(), 0});
      case RankExchangeOutcome::kGivenUp:
        rank_exchange_.Finish(entry.stay, RankExchangeOutcome::kGivenUp);
        entry.given_up = true;
    }
  }
  ringd_operation operation = 0;
  const std::optional<absl::Status> status = submit_(entry.stay, &operation);
  if (!status.has_value()) return;
  if (status->ok()) return End(entry, {Where::kAtRingd, absl::OkStatus(), operation});
  entry.stay.tensor->submissions->Refused();
  End(entry, {Where::kEnded, *status, 0});
}

absl::Status UnendedOperations::SettleThem(const Registration& tensor, Clock::time_point deadline) {
  for (;;) {
    RankExchangeStay stay;
    bool given_up = false;
    {
      MutexLock lock(mutex_);
      const auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& one) {
        return one.found.where == Where::kUnderWay &&
               one.stay.tensor->submissions == tensor.submissions;
      });
      if (entry == entries_.end()) return absl::OkStatus();
      Advance(*entry);
      if (entry->found.where != Where::kUnderWay) continue;
      if (Clock::now() >= deadline) {
        return absl::DeadlineExceededError(
            absl::StrCat("tensor '", tensor.description.name, "': operation ", entry->number,
                         ", which was submitted before, is still ", "in flight between the ranks"));
      }
      stay = entry->stay;
      given_up = entry->given_up;
    }
    Linger(stay, given_up, deadline);
  }
}

void UnendedOperations::Linger(const RankExchangeStay& stay, bool given_up,
                               Clock::time_point deadline) {
  if (given_up) {
    std::this_thread::sleep_for(kRoomInterval);
  } else {
    rank_exchange_.TakeTurn(stay, deadline);
  }
}

UnendedOperations::Found UnendedOperations::Look(ringd_operation operation) {
  MutexLock lock(mutex_);
  Entry* const entry = FindEntry(operation);
  if (entry == nullptr) return {};
  Advance(*entry);
  return entry->found;
}

UnendedOperations::Found UnendedOperations::Await(ringd_operation operation,
                                                  Clock::time_point deadline) {
  for (;;) {
    RankExchangeStay stay;
    bool given_up = false;
    {
      MutexLock lock(mutex_);
      Entry* const entry = FindEntry(operation);
      if (entry == nullptr) return {};
      Advance(*entry);
      const Found found = entry->found;
      if (found.where == Where::kEnded && found.status.ok()) {
        rank_exchange_.Finish(entry->stay, RankExchangeOutcome::kCompleted);
        Erase(entry);
      }
      if (found.where != Where::kUnderWay || Clock::now() >= deadline) return found;
      stay = entry->stay;
      given_up = entry->given_up;
    }
    Linger(stay, given_up, deadline);
  }
}

void UnendedOperations::Forget(ringd_operation operation) {
  MutexLock lock(mutex_);
  if (const Entry* const entry = FindEntry(operation)) Erase(entry);
}

const Registration* UnendedOperations::FindUsed(
    const std::unordered_set<const Registration*>& registrations) {
  MutexLock lock(mutex_);
  const auto found = std::find_if(
      entries_.begin(), entries_.end(),
      [&registrations](const Entry& entry) { return registrations.contains(entry.stay.tensor); });
  return found == entries_.end() ? nullptr : found->stay.tensor;
}

UnendedOperations::Entry* UnendedOperations::FindEntry(ringd_operation operation) {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(),
                   [operation](const Entry& entry) { return entry.number == operation; });
  return found == entries_.end() ? nullptr : &*found;
}

void UnendedOperations::Erase(const Entry* entry) {
  entries_.erase(entries_.begin() + (entry - entries_.data()));
}

}  // namespace ringd::client
