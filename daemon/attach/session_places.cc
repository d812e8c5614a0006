#include "daemon/attach/session_places.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/config/config.h"

namespace ringd {
namespace {

// What is kept, as parts of all places: 16 for root, 64 for newcomers and 4 to each of 256.
constexpr std::uint64_t kRootPart = 16;
constexpr std::uint64_t kNewcomersPart = 4;
constexpr std::uint64_t kFirstPlacesPart = 64;
constexpr std::uint64_t kUserPart = 4;
// With fewer places than this there is nothing to divide.
constexpr std::uint64_t kFewPlaces = 4;

}  // namespace

SessionPlaces::Limits SessionPlaces::LimitsFor(std::uint64_t total, std::uint64_t per_user,
                                               bool shared, uid_t own_user) {
  Limits limits;
  limits.total = total;
  limits.own_user = own_user;
  limits.is_a_quarter = per_user == kAutoCount;
  limits.per_user =
      per_user == kAutoCount ? std::max<std::uint64_t>(1, total / kUserPart) : per_user;
  limits.first_places = std::max<std::uint64_t>(1, total / kFirstPlacesPart);
  if (total < kFewPlaces) return limits;
  limits.kept_for_root = std::max<std::uint64_t>(1, total / kRootPart);
  if (shared) limits.kept_for_newcomers = total / kNewcomersPart;
  return limits;
}

std::uint64_t SessionPlaces::KeptForRoot(const Limits& limits,
                                         const std::map<uid_t, std::uint64_t>& by_user) {
  const auto root = by_user.find(0);
  const std::uint64_t has = root == by_user.end() ? 0 : root->second;
  return limits.kept_for_root - std::min(has, limits.kept_for_root);
}

std::uint64_t SessionPlaces::KeptForNewcomers(const Limits& limits,
                                              const std::map<uid_t, std::uint64_t>& by_user) {
  std::uint64_t used = 0;
  for (const auto& [uid, count] : by_user) {
    if (uid != 0) used += std::min(count, limits.first_places);
  }
  return limits.kept_for_newcomers - std::min(used, limits.kept_for_newcomers);
}

void SessionPlaces::SetLimits(const Limits& limits) {
  MutexLock lock(limits_mutex_);
  limits_ = limits;
}

absl::StatusOr<std::shared_ptr<const void>> SessionPlaces::Take(uid_t uid) {
  Limits limits;
  {
    MutexLock lock(limits_mutex_);
    limits = limits_;
  }
  const std::shared_ptr<Taken> taken = taken_;
  MutexLock lock(taken->mutex);
  const auto entry = taken->by_user.try_emplace(uid, 0).first;
  const std::uint64_t had = entry->second++;
  const std::uint64_t for_root = KeptForRoot(limits, taken->by_user);
  const std::uint64_t for_newcomers = KeptForNewcomers(limits, taken->by_user);
  std::string refusal;
  if (HasOwnLimit(limits, uid) && had >= limits.per_user) {
    refusal = absl::StrCat("as many as one user may have (", limits.per_user,
                           limits.is_a_quarter ? ", a quarter of max_sessions" : "",
                           "; setting max_sessions_per_user)");
  } else if (taken->total >= limits.total) {
    refusal = absl::StrCat("and all ", limits.total, " places are taken (setting max_sessions)");
  } else if (taken->total + 1 + for_root + for_newcomers > limits.total) {
    refusal = absl::StrCat(
        "and the last ", limits.total - std::min(limits.total, taken->total), " of all ",
        limits.total, " places (setting max_sessions) are kept for root and for users who have ",
        limits.first_places == 1 ? "none" : absl::StrCat("fewer than ", limits.first_places));
  }
  if (!refusal.empty()) {
    if (--entry->second == 0) taken->by_user.erase(entry);
    return absl::ResourceExhaustedError(
        absl::StrCat("has ", had, had == 1 ? " trainer" : " trainers", " attached, ", refusal));
  }
  ++taken->total;
  // The pointer's target is of no interest; its end is.
  return std::shared_ptr<const void>(taken.get(), [taken, uid](const void*) {
    MutexLock guard(taken->mutex);
    --taken->total;
    const auto left = taken->by_user.find(uid);
    if (--left->second == 0) taken->by_user.erase(left);
  });
}

}  // namespace ringd
