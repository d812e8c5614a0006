#include "daemon/lanes/device/kept_communicators.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace ringd {

void KeptCommunicators::Add(KeptCommunicator kept, Clock::time_point until) {
  std::erase_if(all_, [&kept](const Entry& entry) {
    if (entry.announced.has_value() || entry.kept.ranks != kept.ranks) return false;
    LetGo(entry.kept);
    return true;
  });
  all_.push_front({std::move(kept), until, std::nullopt, false});
  if (all_.size() <= kMost) return;
  const auto last = std::find_if(all_.rbegin(), all_.rend(),
                                 [](const Entry& entry) { return !entry.announced.has_value(); });
  LetGo(last->kept);
  all_.erase(std::next(last).base());
}

std::vector<const KeptCommunicator*> KeptCommunicators::Announce(Rank rank, int size,
                                                                 const DeviceLauncher& launcher,
                                                                 Clock::time_point now) {
  std::erase_if(all_, [size](const Entry& entry) {
    const bool fits =
        std::ranges::all_of(entry.kept.ranks, [size](Rank one) { return one.value() < size; });
    if (!fits) End(entry.kept);
    return !fits;
  });
  std::vector<const KeptCommunicator*> found;
  for (Entry& entry : all_) {
    const bool has = std::ranges::any_of(entry.kept.here, [&](const KeptCommunicator::Local& here) {
      return here.launcher.get() == &launcher &&
             entry.kept.ranks[static_cast<std::size_t>(here.rank)] == rank;
    });
    if (!has) continue;
    if (!entry.announced.has_value()) entry.announced = now;
    found.push_back(&entry.kept);
  }
  return found;
}

void KeptCommunicators::EndAnnounced(Clock::time_point until) {
  for (Entry& entry : all_) {
    entry.named = false;
    if (std::exchange(entry.announced, std::nullopt).has_value()) entry.until = until;
  }
}

const KeptCommunicator* KeptCommunicators::Of(const std::vector<Rank>& ranks,
                                              Clock::time_point now) const {
  for (const Entry& entry : all_) {
    const bool is_usable =
        !entry.named && entry.announced.has_value() && now < *entry.announced + kUsable;
    if (is_usable && entry.kept.ranks == ranks) return &entry.kept;
  }
  return nullptr;
}

void KeptCommunicators::Name(const NcclIdBytes& id) {
  for (Entry& entry : all_) {
    if (entry.kept.id == id) entry.named = true;
  }
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
    if (entry.named || entry.kept.ranks != ranks) return false;
    End(entry.kept);
    return true;
  });
}

void KeptCommunicators::DropAll() {
  for (const Entry& entry : all_) End(entry.kept);
  all_.clear();
}

void KeptCommunicators::OnFailed(DeviceCommunicatorId communicator) {
  std::erase_if(all_, [communicator](const Entry& entry) {
    const bool is = std::ranges::any_of(entry.kept.here, [communicator](const auto& here) {
      return here.communicator == communicator;
    });
    if (is) End(entry.kept);
    return is;
  });
}

void KeptCommunicators::DropExpired(Clock::time_point now) {
  std::erase_if(all_, [now](const Entry& entry) {
    const bool is_over =
        entry.announced.has_value() ? now >= *entry.announced + kAnnounced : now >= entry.until;
    if (is_over) End(entry.kept);
    return is_over;
  });
}

void KeptCommunicators::End(const KeptCommunicator& kept) {
  for (const KeptCommunicator::Local& here : kept.here) {
    here.launcher->Abort(here.communicator, "no job has come to use it");
  }
}

void KeptCommunicators::LetGo(const KeptCommunicator& kept) {
  const Clock::time_point deadline = Clock::now() + kPartingPatience;
  for (const KeptCommunicator::Local& here : kept.here) {
    here.launcher->Disconnect(here.communicator, deadline);
  }
}

}  // namespace ringd
