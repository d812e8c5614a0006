#include "daemon/door/dial_turns.h"

namespace ringd {

bool DialTurns::Take(uid_t user, std::uint64_t key) {
  User& his = users_[user];
  if (his.waiting.empty() && MayTake(his)) {
    ++his.sockets;
    --free_;
    return true;
  }
  const std::uint64_t arrival = ++last_arrival_;
  his.waiting.emplace(arrival, key);
  waiting_.emplace(key, Place{user, arrival});
  return false;
}

void DialTurns::Release(uid_t user) {
  const auto found = users_.find(user);
  --found->second.sockets;
  ++free_;
  EraseIfIdle(found);
}

std::optional<std::uint64_t> DialTurns::Next() {
  User* next = nullptr;
  for (auto& [uid, user] : users_) {
    if (user.waiting.empty() || !MayTake(user)) continue;
    if (next == nullptr || user.sockets < next->sockets) next = &user;
  }
  if (next == nullptr) return std::nullopt;
  const std::uint64_t key = next->waiting.begin()->second;
  next->waiting.erase(next->waiting.begin());
  waiting_.erase(key);
  ++next->sockets;
  --free_;
  return key;
}

void DialTurns::Forget(std::uint64_t key) {
  const auto found = waiting_.find(key);
  if (found == waiting_.end()) return;
  const auto user = users_.find(found->second.user);
  user->second.waiting.erase({found->second.arrival, key});
  waiting_.erase(found);
  EraseIfIdle(user);
}

void DialTurns::EraseIfIdle(Users::iterator user) {
  if (user->second.sockets == 0 && user->second.waiting.empty()) users_.erase(user);
}

void DialTurns::Clear() {
  for (const auto& [uid, user] : users_) free_ += user.sockets;
  users_.clear();
  waiting_.clear();
}

}  // namespace ringd
