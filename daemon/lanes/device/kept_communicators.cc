#include "daemon/lanes/device/kept_communicators.h"

#include <algorithm>
#include <utility>

namespace ringd {

void KeptCommunicators::Add(KeptCommunicator kept, Clock::time_point until) {
  Drop(kept.ranks);
  all_.push_front({std::move(kept), until, false});
  if (all_.size() <= kMost) return;
  LetGo(all_.back().kept);
  all_.pop_back();
}

std::vector<const KeptCommunicator*> KeptCommunicators::Announce(Rank rank,
                                                                 const std::string& gpu) {
  std::vector<const KeptCommunicator*> found;
  for (Entry& entry : all_) {
    const bool has = std::ranges::any_of(entry.kept.here, [&](const KeptCommunicator::Local& here) {
      return here.gpu == gpu && entry.kept.ranks[static_cast<std::size_t>(here.rank)] == rank;
    });
    if (!has) continue;
    entry.announced = true;
    found.push_back(&entry.kept);
  }
  return found;
}

void KeptCommunicators::EndAnnounced(Clock::time_point until) {
  for (Entry& entry : all_) {
    if (std::exchange(entry.announced, false)) entry.until = until;
  }
}

std::vector<const KeptCommunicator*> KeptCommunicators::Of(const std::vector<Rank>& ranks) const {
  std::vector<const KeptCommunicator*> found;
  for (const Entry& entry : all_) {
    if (entry.kept.ranks == ranks) found.push_back(&entry.kept);
  }
  return found;
}

std::optional<KeptCommunicator> KeptCommunicators::Take(const NcclIdBytes& id) {
  const auto found = std::ranges::find_if(all_, [&id](const Entry& e) { return e.kept.id == id; });
  if (found == all_.end()) return std::nullopt;
  KeptCommunicator taken = std::move(found->kept);
  all_.erase(found);
  return taken;
}

void KeptCommunicators::Drop(const std::vector<Rank>& ranks) {
  std::erase_if(all_, [&ranks](const Entry& entry) {
    if (entry.kept.ranks != ranks) return false;
    LetGo(entry.kept);
    return true;
  });
}

void KeptCommunicators::OnFailed(DeviceCommunicatorId communicator) {
  std::erase_if(all_, [communicator](const Entry& entry) {
    const bool is = std::ranges::any_of(entry.kept.here, [communicator](const auto& here) {
      return here.communicator == communicator;
    });
    if (is) LetGo(entry.kept);
    return is;
  });
}

void KeptCommunicators::DropExpired(Clock::time_point now) {
  std::erase_if(all_, [now](const Entry& entry) {
    if (entry.announced || now < entry.until) return false;
    LetGo(entry.kept);
    return true;
  });
}

void KeptCommunicators::LetGo(const KeptCommunicator& kept) {
  const Clock::time_point deadline = Clock::now() + kPartingPatience;
  for (const KeptCommunicator::Local& here : kept.here) {
    here.launcher->Disconnect(here.communicator, deadline);
  }
}

}  // namespace ringd
