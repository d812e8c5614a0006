#include "daemon/supervisor/job_generations.h"

#include <algorithm>

namespace ringd {
namespace {

template <typename Map>
auto OldestOf(Map& map) {
  return std::min_element(map.begin(), map.end(), [](const auto& a, const auto& b) {
    return a.second.noted < b.second.noted;
  });
}

}  // namespace

std::uint32_t JobGenerations::Next(uid_t uid, const std::string& job_id) const {
  const auto user = users_.find(uid);
  if (user == users_.end()) return 0;
  const auto name = user->second.names.find(job_id);
  return name == user->second.names.end() ? user->second.others : name->second.next;
}

void JobGenerations::Note(uid_t uid, const std::string& job_id, std::uint32_t next) {
  User& user = users_[uid];
  user.noted = ++notes_;
  Name& name = user.names[job_id];
  name = {std::max(name.next, next), notes_};
  if (user.names.size() > kMostOfUser) {
    const auto oldest = OldestOf(user.names);
    user.others = std::max(user.others, oldest->second.next);
    user.names.erase(oldest);
  }
  if (users_.size() > kMostUsers) users_.erase(OldestOf(users_));
}

}  // namespace ringd
