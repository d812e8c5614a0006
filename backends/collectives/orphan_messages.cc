#include "backends/collectives/orphan_messages.h"

namespace ringd {

OrphanMessages::~OrphanMessages() {
  for (auto& [key, messages] : orphans_) messages.Clear(pool_);
}

void OrphanMessages::Hold(const WireKey& key, const MessageHeader& header,
                          std::span<const std::byte> payload) {
  if (retired_.contains(key) || incomplete_.contains(key)) return;
  EarlyMessage* const message = pool_.Copy(header, payload);
  if (!MakeRoom(key, message->taken_bytes)) {
    pool_.GiveBack(message);
    return;
  }
  const auto [place, inserted] = orphans_.try_emplace(key);
  if (inserted) oldest_first_.push_back(key);
  place->second.PushBack(message);
  taken_bytes_ += message->taken_bytes;
  ++message_count_;
}

bool OrphanMessages::MakeRoom(const WireKey& key, std::size_t taken_bytes) {
  while (!orphans_.empty() &&
         (taken_bytes_ + taken_bytes > kMaxBytes || message_count_ + 1 > kMaxMessages)) {
    const WireKey oldest = oldest_first_.front();
    oldest_first_.pop_front();
    if (!orphans_.contains(oldest)) continue;
    Forget(oldest);
    Remember(oldest, incomplete_, incomplete_order_);
    if (oldest == key) return false;
  }
  return true;
}

bool OrphanMessages::Take(const WireKey& key, EarlyMessageList& messages) {
  if (incomplete_.contains(key)) return false;
  if (const auto found = orphans_.find(key); found != orphans_.end()) {
    messages = found->second;
    taken_bytes_ -= messages.taken_bytes();
    message_count_ -= messages.size();
    orphans_.erase(found);
    std::erase(oldest_first_, key);
  }
  return true;
}

void OrphanMessages::Retire(const WireKey& key) {
  Forget(key);
  std::erase(oldest_first_, key);
  Remember(key, retired_, retired_order_);
}

void OrphanMessages::Forget(const WireKey& key) {
  const auto found = orphans_.find(key);
  if (found == orphans_.end()) return;
  taken_bytes_ -= found->second.taken_bytes();
  message_count_ -= found->second.size();
  found->second.Clear(pool_);
  orphans_.erase(found);
}

void OrphanMessages::Remember(const WireKey& key, absl::flat_hash_set<WireKey>& set,
                              std::deque<WireKey>& order) {
  if (!set.insert(key).second) return;
  order.push_back(key);
  if (order.size() > kMaxRemembered) {
    set.erase(order.front());
    order.pop_front();
  }
}

}  // namespace ringd
