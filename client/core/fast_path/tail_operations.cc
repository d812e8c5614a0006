#include "client/core/fast_path/tail_operations.h"

#include <algorithm>
#include <utility>

#include "proto/base/clock.h"

namespace ringd::client {
namespace {

// A thread that waits for another one's carrying looks again this often.
constexpr std::chrono::milliseconds kLongestSleep{50};

}  // namespace

TailOperations::TailOperations(FastPathOperations& fast_path, Submit submit)
    : fast_path_(fast_path), submit_(std::move(submit)), tail_(fast_path.limit_bytes()) {
  held_.reserve(StepTail::kMostTensors);
  under_way_.reserve(StepTail::kMostTensors);
  parts_.reserve(StepTail::kMostTensors);
}

bool TailOperations::TryHold(Registration& tensor, const void* source, void* destination,
                             ringd_operation* operation) {
  MutexLock lock(mutex_);
  // What was released, and found no room, is no part of what begins now.
  if (tail_.held() == 0) SubmitHeld(WhenFull::kWait);
  if (!tail_.OnSubmit(tensor)) {
    SubmitHeld(WhenFull::kWait);
    return false;
  }
  if (held_.empty()) fast_path_.ShowHeld(MonotonicNanos());
  *operation = kTicketBit | next_ticket_++;
  held_.push_back({{&tensor, source, destination}, *operation});
  if (tickets_.size() == kMostTickets) tickets_.erase(tickets_.begin());
  tickets_.push_back({*operation, 0, absl::OkStatus()});
  return true;
}

void TailOperations::BeginWait(bool may_carry, const std::function<void()>& meanwhile) {
  {
    MutexLock lock(mutex_);
    const bool whole = tail_.OnWait();
    if (held_.empty()) return;
    if (!whole || !may_carry || carrying_) {
      SubmitHeld(WhenFull::kWait);
      return;
    }
    carrying_ = true;
    under_way_.swap(held_);
    fast_path_.ShowHeld(0);
  }
  parts_.clear();
  for (const Held& held : under_way_) parts_.push_back(held.part);
  const FastPathEnd end = fast_path_.Carry(parts_, FastPathSpin::kAlways, meanwhile);
  MutexLock lock(mutex_);
  if (end == FastPathEnd::kGivenUp) tail_.OnGivenUp(*parts_.back().tensor);
  for (const Held& held : under_way_) {
    switch (end) {
      case FastPathEnd::kCompleted:
        if (Ticket* ticket = FindTicket(held.ticket)) ticket->operation = RINGD_DONE;
        break;
      case FastPathEnd::kGivenUp:
      case FastPathEnd::kEnded:
        // Where the context has ended the submission is refused with the reason.
        static_cast<void>(SubmitOne(held, WhenFull::kWait, true));
        break;
    }
  }
  under_way_.clear();
  carrying_ = false;
  carried_.NotifyAll();
}

void TailOperations::BeginTest() {
  MutexLock lock(mutex_);
  tail_.OnTest();
  SubmitHeld(WhenFull::kWait);
}

void TailOperations::Release() {
  // Whoever has the lock is in a call that submits, holds or carries.
  if (!mutex_.TryLock()) return;
  SubmitHeld(WhenFull::kFail);
  mutex_.Unlock();
}

void TailOperations::SubmitHeld(WhenFull when_full) {
  if (held_.empty()) return;
  tail_.OnReleased();
  std::size_t submitted = 0;
  while (submitted < held_.size() && SubmitOne(held_[submitted], when_full, false)) ++submitted;
  held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(submitted));
  // ringd asks again for what it had no room for.
  fast_path_.ShowHeld(held_.empty() ? 0 : MonotonicNanos());
}

bool TailOperations::SubmitOne(const Held& held, WhenFull when_full, bool counted) {
  ringd_operation operation = 0;
  const absl::Status status = submit_(*held.part.tensor, held.part.source, held.part.destination,
                                      when_full, counted, &operation);
  if (when_full == WhenFull::kFail && absl::IsResourceExhausted(status)) return false;
  if (Ticket* ticket = FindTicket(held.ticket)) {
    ticket->operation = operation;
    ticket->status = status;
  }
  return true;
}

absl::StatusOr<ringd_operation> TailOperations::Find(ringd_operation number) {
  MutexLock lock(mutex_);
  for (;;) {
    const Ticket* ticket = FindTicket(number);
    if (ticket == nullptr) return ringd_operation{0};
    if (!ticket->status.ok()) return ticket->status;
    if (ticket->operation != 0) return ticket->operation;
    if (carrying_) {
      carried_.WaitUntil(mutex_, Clock::now() + kLongestSleep);
    } else {
      SubmitHeld(WhenFull::kWait);
    }
  }
}

void TailOperations::Forget(ringd_operation number) {
  MutexLock lock(mutex_);
  if (Ticket* ticket = FindTicket(number))
    tickets_.erase(tickets_.begin() + (ticket - tickets_.data()));
}

TailOperations::Ticket* TailOperations::FindTicket(ringd_operation number) {
  const auto found = std::find_if(tickets_.begin(), tickets_.end(),
                                  [number](const Ticket& entry) { return entry.ticket == number; });
  return found == tickets_.end() ? nullptr : &*found;
}

}  // namespace ringd::client
