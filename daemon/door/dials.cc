#include "daemon/door/dials.h"

#include <algorithm>

#include "daemon/door/door_poll.h"

namespace ringd {

Dials::Dials(int epoll, std::string own_name, CongestionControl congestion_control)
    : epoll_(epoll),
      own_name_(std::move(own_name)),
      congestion_control_(std::move(congestion_control)),
      next_key_(kFirstDialKey) {}

void Dials::Add(DialRequest request, Clock::time_point now) {
  const std::uint64_t key = next_key_++;
  const auto entry = entries_.emplace(key, Dial(std::move(request))).first;
  Begin(entry, now);
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
  const std::uint64_t key = entry->first;
  if (connecting_.size() >= kMostSockets) return SetDue(key, now + kTurnPause);
  const Dial::Progress progress = entry->second.Begin(now, own_name_, congestion_control_);
  if (progress == Dial::Progress::kConnecting) {
    connecting_.insert(key);
    // If the kernel has no room for it the attempt ends with its time.
    WatchAtDoor(epoll_, entry->second.socket(), kHandshakeEvents, key);
  }
  Follow(entry, progress);
}

void Dials::Follow(Entries::iterator entry, Dial::Progress progress) {
  const std::uint64_t key = entry->first;
  if (progress != Dial::Progress::kEnded) {
    if (progress == Dial::Progress::kPausing) connecting_.erase(key);
    return SetDue(key, entry->second.due());
  }
  SetDue(key, Clock::time_point::max());
  connecting_.erase(key);
  absl::StatusOr<DoorConnection> outcome = entry->second.TakeOutcome();
  const DialRequest request = entry->second.request();
  entries_.erase(entry);
  if (outcome.ok()) UnwatchAtDoor(epoll_, outcome->socket.get());
  request.done(std::move(outcome));
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
  while (!queue_.empty() && queue_.begin()->first <= now) {
    const std::uint64_t key = queue_.begin()->second;
    SetDue(key, Clock::time_point::max());
    const auto entry = entries_.find(key);
    if (connecting_.contains(key)) {
      Follow(entry, entry->second.TimeOut(now));
    } else {
      Begin(entry, now);
    }
  }
}

void Dials::Abandon(std::uint64_t group) {
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    if (entry->second.request().group != group) {
      ++entry;
      continue;
    }
    SetDue(entry->first, Clock::time_point::max());
    connecting_.erase(entry->first);
    entry = entries_.erase(entry);
  }
}

Clock::time_point Dials::NextDue() const noexcept {
  return queue_.empty() ? Clock::time_point::max() : queue_.begin()->first;
}

void Dials::Clear() {
  entries_.clear();
  due_.clear();
  queue_.clear();
  connecting_.clear();
}

}  // namespace ringd
