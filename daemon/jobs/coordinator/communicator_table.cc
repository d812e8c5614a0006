#include "daemon/jobs/coordinator/communicator_table.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ringd {
namespace {

constexpr std::size_t kRanksNamed = 16;

bool HaveCommonRank(const std::vector<int>& a, const std::vector<int>& b) {
  return std::any_of(a.begin(), a.end(),
                     [&b](int rank) { return std::find(b.begin(), b.end(), rank) != b.end(); });
}

// "'tensor-parallel-0' (ranks 0, 1, 4)"; long lists are cut.
std::string DescribeCommunicator(const AskedCommunicator& asked) {
  return absl::StrCat("'", asked.name, "' (", NameRanks(asked.ranks), ")");
}

}  // namespace

std::string NameRanks(std::span<const int> ranks) {
  const auto named = ranks.subspan(0, std::min(ranks.size(), kRanksNamed));
  std::string text = absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ",
                                  absl::StrJoin(named.begin(), named.end(), ", "));
  if (ranks.size() > named.size()) {
    absl::StrAppend(&text, " and ", ranks.size() - named.size(), " more");
  }
  return text;
}

absl::Status CommunicatorTable::Check(int rank, const AskedCommunicator& asked) const {
  std::set<int> distinct;
  for (const int member : asked.ranks) {
    if (member < 0 || member >= job_size_) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", member, " is none of the job's ", job_size_));
    }
    if (!distinct.insert(member).second) {
      return absl::InvalidArgumentError(absl::StrCat("rank ", member, " is named twice"));
    }
  }
  if (!distinct.contains(rank)) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, " asks for it and is not one of its ranks"));
  }
  const auto [first, last] = names_.equal_range(asked.name);
  for (auto it = first; it != last; ++it) {
    const Live& live = live_.at(it->second);
    if (!HaveCommonRank(live.made.ranks, asked.ranks)) continue;
    return absl::AlreadyExistsError(absl::StrCat("there is one of this name, ",
                                                 DescribeCommunicator(live.made),
                                                 ", until all its ranks have destroyed it"));
  }
  const auto gone = std::find_if(asked.ranks.begin(), asked.ranks.end(),
                                 [this](int member) { return left_.contains(member); });
  if (gone != asked.ranks.end()) {
    return absl::AbortedError(absl::StrCat("rank ", *gone, " has left the job (shutdown)"));
  }
  return absl::OkStatus();
}

RefusedCommunicator CommunicatorTable::Refuse(const Waiting& waiting, absl::Status why) {
  return {waiting.asked.name, {waiting.present.begin(), waiting.present.end()}, std::move(why)};
}

std::variant<std::monostate, AskedCommunicator, RefusedCommunicator> CommunicatorTable::Ask(
    int rank, AskedCommunicator asked, std::chrono::nanoseconds patience, Clock::time_point now) {
  const auto refuse = [&](const absl::Status& why) {
    return RefusedCommunicator{
        asked.name,
        {rank},
        absl::Status(why.code(), absl::StrCat("communicator '", asked.name, "': ", why.message()))};
  };
  if (absl::Status status = Check(rank, asked); !status.ok()) return refuse(status);
  const auto [first, last] = waiting_.equal_range(asked.name);
  for (auto it = first; it != last; ++it) {
    Waiting& waiting = it->second;
    if (!HaveCommonRank(waiting.asked.ranks, asked.ranks)) continue;
    if (waiting.asked.ranks != asked.ranks) {
      RefusedCommunicator refused =
          Refuse(waiting,
                 absl::InvalidArgumentError(absl::StrCat(
                     "communicator '", asked.name, "': rank ", *waiting.present.begin(), " says ",
                     NameRanks(waiting.asked.ranks), ", rank ", rank, " says ",
                     NameRanks(asked.ranks), ": all must give the same ranks in the same order")));
      refused.asked.push_back(rank);
      waiting_.erase(it);
      return refused;
    }
    if (waiting.asked.by_order != asked.by_order) {
      const auto matching = [](bool by_order) { return by_order ? "by order" : "by name"; };
      RefusedCommunicator refused = Refuse(
          waiting,
          absl::InvalidArgumentError(absl::StrCat(
              "communicator ", DescribeCommunicator(asked), ": rank ", *waiting.present.begin(),
              " says that its operations are matched ", matching(waiting.asked.by_order), ", rank ",
              rank, " says ", matching(asked.by_order), ": all must say the same")));
      refused.asked.push_back(rank);
      waiting_.erase(it);
      return refused;
    }
    if (!waiting.present.insert(rank).second) {
      return refuse(absl::AlreadyExistsError(
          absl::StrCat("rank ", rank, " asks for it already, from another thread")));
    }
    waiting.deadline = std::max(waiting.deadline, now + patience);
    waiting.patience = std::max(waiting.patience, patience);
    if (waiting.present.size() < asked.ranks.size()) return std::monostate();
    waiting_.erase(it);
    return asked;
  }
  if (waiting_.size() + live_.size() >= kMostCommunicators) {
    return refuse(absl::ResourceExhaustedError(
        absl::StrCat("the job has ", live_.size(), " communicators, and its ranks wait for ",
                     waiting_.size(), " more; at most ", kMostCommunicators,
                     " are possible: destroy those that are not needed")));
  }
  if (asked.ranks.size() == 1) return asked;
  std::string name = asked.name;
  waiting_.emplace(std::move(name), Waiting{std::move(asked), {rank}, now + patience, patience});
  return std::monostate();
}

std::uint32_t CommunicatorTable::Made(AskedCommunicator made) {
  names_.emplace(made.name, ++last_number_);
  live_.emplace(last_number_, Live{std::move(made), {}});
  return last_number_;
}

bool CommunicatorTable::Drop(std::uint32_t number, int rank) {
  const auto found = live_.find(number);
  if (found == live_.end()) return false;
  Live& live = found->second;
  const auto& ranks = live.made.ranks;
  if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) return false;
  live.dropped.insert(rank);
  if (!HasEnded(live)) return false;
  Forget(number);
  return true;
}

bool CommunicatorTable::HasEnded(const Live& live) const {
  return std::ranges::all_of(live.made.ranks, [&](int rank) {
    return live.dropped.contains(rank) || left_.contains(rank);
  });
}

void CommunicatorTable::Forget(std::uint32_t number) {
  const auto found = live_.find(number);
  const auto [first, last] = names_.equal_range(found->second.made.name);
  names_.erase(std::find_if(first, last, [&](const auto& name) { return name.second == number; }));
  live_.erase(found);
}

std::vector<RefusedCommunicator> CommunicatorTable::Expire(Clock::time_point now) {
  std::vector<RefusedCommunicator> refused;
  std::erase_if(waiting_, [&](const auto& entry) {
    const Waiting& waiting = entry.second;
    if (now < waiting.deadline) return false;
    std::vector<int> missing;
    for (const int rank : waiting.asked.ranks) {
      if (!waiting.present.contains(rank)) missing.push_back(rank);
    }
    refused.push_back(Refuse(
        waiting,
        absl::DeadlineExceededError(absl::StrCat(
            "communicator ", DescribeCommunicator(waiting.asked), " could not be made within ",
            std::chrono::duration<double>(waiting.patience).count(), " s: ", NameRanks(missing),
            missing.size() == 1 ? " has" : " have", " not asked for it"))));
    return true;
  });
  return refused;
}

CommunicatorTable::WithoutRank CommunicatorTable::OnRankLeft(int rank) {
  WithoutRank without;
  if (rank < 0 || rank >= job_size_) return without;
  left_.insert(rank);
  for (const auto& [number, live] : live_) {
    if (HasEnded(live)) without.ended.push_back(number);
  }
  for (const std::uint32_t number : without.ended) Forget(number);
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    Waiting& waiting = it->second;
    const auto& ranks = waiting.asked.ranks;
    if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) {
      ++it;
      continue;
    }
    waiting.present.erase(rank);
    if (!waiting.present.empty()) {
      without.refused.push_back(
          Refuse(waiting, absl::AbortedError(absl::StrCat(
                              "communicator ", DescribeCommunicator(waiting.asked),
                              " can't be made: rank ", rank, " has left the job (shutdown)"))));
    }
    it = waiting_.erase(it);
  }
  return without;
}

}  // namespace ringd
