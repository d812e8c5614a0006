#include "daemon/supervisor/job_generations.h"

#include <algorithm>

namespace ringd {

std::uint32_t JobGenerations::Next(uid_t uid, const std::string& job_id) const {
  const auto user = users_.find(uid);
  if (user == users_.end()) return 0;
  const auto name = user->second.names.find(job_id);
  return name == user->second.names.end() ? user->second.others : name->second.next;
}

void JobGenerations::Note(uid_t uid, const std::string& job_id, std::uint32_t next) {
  User& user = users_[uid];
  user.names[job_id] = {next, ++user.notes};
  if (user.names.size() <= kMostOfUser) return;
  const auto oldest = std::min_element(
      user.names.begin(), user.names.end(),
      [](const auto& a, const auto& b) { return a.second.noted < b.second.noted; });
  user.others = std::max(user.others, oldest->second.next);
  user.names.erase(oldest);
}

}  // namespace ringd
