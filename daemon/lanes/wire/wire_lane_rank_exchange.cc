// What WireLane knows of operations that its ranks carry out themselves, in the rank exchange.
#include <algorithm>

#include "daemon/lanes/wire/wire_lane.h"

namespace ringd {

absl::Status WireLane::OpenRankExchange(std::vector<UniqueFd> connections) {
  const RankExchangeGeometry geometry{static_cast<std::uint32_t>(members_.size()),
                                      static_cast<std::uint32_t>(membership_->nodes.size()),
                                      static_cast<std::uint32_t>(membership_->self.value()),
                                      membership_->rank_exchange.limit_bytes,
                                      membership_->rank_exchange.flat_bytes};
  auto opened =
      RankExchangeWatch::Create(geometry, std::move(connections), members_, options_.isolated);
  if (!opened.ok()) return opened.status();
  rank_exchange_ = *std::move(opened);
  return absl::OkStatus();
}

void WireLane::Look(Clock::time_point now) {
  if (rank_exchange_ != nullptr) rank_exchange_->Look(now);
}

std::optional<Clock::time_point> WireLane::NextLook(Clock::time_point now) const {
  if (rank_exchange_ == nullptr) return std::nullopt;
  return now + RankExchangeWatch::kLookInterval;
}

bool WireLane::RanksRest() const noexcept {
  return rank_exchange_ == nullptr || !rank_exchange_->late();
}

std::optional<Clock::time_point> WireLane::WaitingSince(Clock::time_point before) const {
  bool all = true;
  std::vector<WaitingSubmission> waiting;
  AddWaiting(before, SIZE_MAX, all, waiting);
  std::optional<Clock::time_point> since;
  for (const WaitingSubmission& entry : waiting) {
    since = std::min(since.value_or(entry.since), entry.since);
  }
  return since;
}

void WireLane::AddWaiting(Clock::time_point before, std::size_t /*most*/, bool& /*all*/,
                          std::vector<WaitingSubmission>& waiting) const {
  if (rank_exchange_ == nullptr || failed_) return;
  const std::vector<int> holders = rank_exchange_->Holders();
  // One of each member at most.
  for (const RankExchangeWait& wait : rank_exchange_->Waiting(before, Clock::now())) {
    const Registration* const registration =
        members_[static_cast<std::size_t>(wait.member)]->FindRegistration(wait.registration);
    // A holder waits for nobody, and others for it.
    const bool holds = std::find(holders.begin(), holders.end(), wait.member) != holders.end();
    if (registration == nullptr || holds) continue;
    WaitingSubmission& entry = waiting.emplace_back();
    entry.member = wait.member;
    entry.name = registration->name;
    entry.bytes = registration->bytes;
    entry.since = wait.since;
    entry.state = TensorState::kRunning;
    entry.absent_members = holders;
  }
}

bool WireLane::AllHaveSubmitted(const std::string&, const std::vector<int>& absent) const {
  return absent.empty();
}

std::vector<int> WireLane::MembersWithout(const std::string& tensor,
                                          std::vector<int> absent) const {
  bool all = true;
  std::vector<WaitingSubmission> on_rank_exchange;
  AddWaiting(Clock::time_point::max(), SIZE_MAX, all, on_rank_exchange);
  std::erase_if(on_rank_exchange, [&](const auto& wait) { return wait.name != tensor; });
  for (const WaitingSubmission& wait : on_rank_exchange) std::erase(absent, wait.member);
  if (on_rank_exchange.empty()) return absent;
  // They wait for one who has submitted it, but holds what they need.
  for (const int holder : rank_exchange_->Holders()) {
    if (std::find(absent.begin(), absent.end(), holder) == absent.end()) absent.push_back(holder);
  }
  std::sort(absent.begin(), absent.end());
  return absent;
}

Lane::Carried WireLane::CarriedByRanks() const noexcept {
  Carried carried;
  if (rank_exchange_ == nullptr) return carried;
  for (std::size_t m = 0; m < members_.size(); ++m) {
    const RankExchangeMemberCounters member = rank_exchange_->Counters(static_cast<int>(m));
    carried.tensors += member.completed;
    carried.payload_bytes = std::max(carried.payload_bytes, member.bytes);
  }
  carried.operations = rank_exchange_->completed();
  return carried;
}

void WireLane::AddCounters(int member, MemberCounters& counters) const noexcept {
  if (rank_exchange_ == nullptr) return;
  const RankExchangeMemberCounters exchanged = rank_exchange_->Counters(member);
  counters.submitted += exchanged.completed;
  counters.ended += exchanged.completed;
  counters.bytes += exchanged.bytes;
}

}  // namespace ringd
