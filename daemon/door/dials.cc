#include "daemon/door/dials.h"

#include <algorithm>
#include <optional>

#include "daemon/door/door_poll.h"

namespace ringd {

Dials::Dials(int epoll, std::string own_name, CongestionControl congestion_control)
    : epoll_(epoll),
      own_name_(std::move(own_name)),
      congestion_control_(std::move(congestion_control)),
      next_key_(kFirstDialKey) {}

void Dials::Add(DialRequest request, Clock::time_point now) {
  const std::uint64_t key = next_key_++;
  groups_[request.group].insert(key);
  entries_.emplace(key, Dial(std::move(request)));
  SetDue(key, now);
}

void Dials::LeaveTurn(Entries::iterator entry) {
  if (connecting_.erase(entry->first) > 0) turns_.Release(entry->second.request().user);
}

void Dials::Erase(Entries::iterator entry) {
  SetDue(entry->first, Clock::time_point::max());
  turns_.Forget(entry->first);
  LeaveTurn(entry);
  const auto group = groups_.find(entry->second.request().group);
  group->second.erase(entry->first);
  if (group->second.empty()) groups_.erase(group);
  entries_.erase(entry);
}

void Dials::SetDue(std::uint64_t key, Clock::time_point due) {
  const auto found = due_.find(key);
  if (found != due_.end()) {
    queue_.erase({found->second, key});
    due_.erase(found);
  }
  if (due == Clock::time_point::max()) return;
  due_.emplace(key, due);
  queue_.emplace(due, key);
}

void Dials::Begin(Entries::iterator entry, Clock::time_point now) {
  if (turns_.Take(entry->second.request().user, entry->first)) return Attempt(entry, now);
  SetDue(entry->first, entry->second.request().deadline);
}

void Dials::Attempt(Entries::iterator entry, Clock::time_point now) {
  const std::uint64_t key = entry->first;
  connecting_.insert(key);
  const Dial::Progress progress = entry->second.Begin(now, own_name_, congestion_control_);
  if (progress == Dial::Progress::kConnecting) {
    // If the kernel has no room for it the attempt ends with its time.
    WatchAtDoor(epoll_, entry->second.socket(), kHandshakeEvents, key);
  }
  Follow(entry, progress);
}

void Dials::Follow(Entries::iterator entry, Dial::Progress progress) {
  if (progress != Dial::Progress::kConnecting) LeaveTurn(entry);
  if (progress != Dial::Progress::kEnded) return SetDue(entry->first, entry->second.due());
  absl::StatusOr<DoorConnection> outcome = entry->second.TakeOutcome();
  const DialRequest request = entry->second.request();
  Erase(entry);
  if (outcome.ok()) UnwatchAtDoor(epoll_, outcome->socket.get());
  request.done(std::move(outcome));
}

void Dials::TakeTurns(Clock::time_point now) {
  turns_left_ = true;
  for (int i = 0; i < kMostAtOnce; ++i) {
    const std::optional<std::uint64_t> key = turns_.Next();
    if (!key.has_value()) {
      turns_left_ = false;
      return;
    }
    SetDue(*key, Clock::time_point::max());
    Attempt(entries_.find(*key), now);
  }
}

bool Dials::IsOwn(const DoorNonce& nonce) const noexcept {
  return std::any_of(connecting_.begin(), connecting_.end(),
                     [&](std::uint64_t key) { return entries_.at(key).HasNonce(nonce); });
}

void Dials::OnEvent(std::uint64_t key, Clock::time_point now) {
  const auto entry = entries_.find(key);
  // The event of a socket that was closed in this batch may still be there.
  if (entry == entries_.end() || !connecting_.contains(key)) return;
  Follow(entry, entry->second.Advance(now));
}

void Dials::RunDue(Clock::time_point now) {
  for (int i = 0; i < kMostAtOnce && !queue_.empty() && queue_.begin()->first <= now; ++i) {
    const std::uint64_t key = queue_.begin()->second;
    SetDue(key, Clock::time_point::max());
    const auto entry = entries_.find(key);
    if (connecting_.contains(key)) {
      Follow(entry, entry->second.TimeOut(now));
    } else if (turns_.IsWaiting(key)) {
      Follow(entry, entry->second.MissTurn(now));
    } else {
      Begin(entry, now);
    }
  }
  TakeTurns(now);
}

void Dials::Abandon(std::uint64_t group) {
  const auto found = groups_.find(group);
  if (found == groups_.end()) return;
  const std::set<std::uint64_t> keys = found->second;
  for (const std::uint64_t key : keys) Erase(entries_.find(key));
}

Clock::time_point Dials::NextDue() const noexcept {
  if (turns_left_) return Clock::time_point::min();
  return queue_.empty() ? Clock::time_point::max() : queue_.begin()->first;
}

void Dials::Clear() {
  entries_.clear();
  groups_.clear();
  turns_.Clear();
  turns_left_ = false;
  due_.clear();
  queue_.clear();
  connecting_.clear();
}

}  // namespace ringd
