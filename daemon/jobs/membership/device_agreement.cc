#include "daemon/jobs/membership/device_agreement.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ringd {
namespace {

// Names in a text.
constexpr std::size_t kMostNamed = 4;

}  // namespace

void DeviceAgreement::Add(Ask ask) {
  const auto under_way = std::count_if(asks_.begin(), asks_.end(), [&ask](const Waiting& waiting) {
    return waiting.ask.rank == ask.rank;
  });
  if (under_way >= kMostAsks) {
    ask.done(absl::ResourceExhaustedError(absl::StrCat("rank ", ask.rank, " waits for the GPUs of ",
                                                       under_way, " communicators already")),
             {});
    return;
  }
  AgreedDevices reply;
  if (IsDecided(ask, /*is_late=*/false, reply)) {
    ask.done(absl::OkStatus(), reply);
    return;
  }
  const Clock::time_point since = ask.since;
  asks_.push_back({std::move(ask), since});
}

void DeviceAgreement::OnWord(const v1::RankDevice& device) {
  const auto [word, is_first] = words_.try_emplace(device.rank(), device);
  // One that has opened a GPU goes on with it.
  if (!is_first && word->second.has_no_gpu()) word->second = device;
  AnswerDecided([](const Ask&) { return false; });
}

bool DeviceAgreement::HasKept(int rank, absl::string_view unique_id, std::uint64_t launched) const {
  const auto word = words_.find(rank);
  if (word == words_.end() || left_.contains(rank)) return false;
  const auto& all = word->second.kept();
  return std::any_of(all.begin(), all.end(), [&](const v1::KeptCommunicator& kept) {
    return kept.unique_id() == unique_id && kept.launched() == launched;
  });
}

void DeviceAgreement::OnLeft(int rank) {
  left_.insert(rank);
  Answer([rank](const Ask& ask, AgreedDevices&) { return ask.rank == rank; },
         absl::CancelledError("this rank left its job"));
  AnswerDecided([](const Ask&) { return false; });
}

void DeviceAgreement::Tick(Clock::time_point now, std::chrono::nanoseconds warning,
                           const std::string& instead, const Warn& warn) {
  AnswerDecided([now](const Ask& ask) { return now >= ask.until; });
  if (warning.count() == 0) return;
  for (Waiting& waiting : asks_) {
    if (now - waiting.warned_at < warning) continue;
    waiting.warned_at = now;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - waiting.ask.since);
    warn(waiting.ask.rank,
         absl::StrCat("rank ", waiting.ask.rank, " waits for ",
                      instead.empty()
                          ? absl::StrCat(Describe(Silent(waiting.ask.ranks)), " to open a GPU")
                          : instead,
                      ", since ", seconds.count(), " s"));
  }
}

void DeviceAgreement::Fail(const absl::Status& cause) {
  Answer([](const Ask&, AgreedDevices&) { return true; }, cause);
}

int DeviceAgreement::FirstByHost(const std::vector<int>& ranks) const {
  int first = -1;
  for (const int rank : ranks) {
    const auto word = words_.find(rank);
    if (word == words_.end() || !word->second.goes_by_host()) continue;
    if (first < 0 || rank < first) first = rank;
  }
  return first;
}

std::vector<int> DeviceAgreement::Silent(const std::vector<int>& ranks) const {
  std::vector<int> silent;
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(silent),
               [this](int rank) { return !words_.contains(rank) && !left_.contains(rank); });
  return silent;
}

std::string DeviceAgreement::Describe(const std::vector<int>& silent) const {
  std::string text;
  for (std::size_t i = 0; i < std::min(silent.size(), kMostNamed); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : "; ", name_(silent[i]));
  }
  if (silent.size() > kMostNamed) {
    absl::StrAppend(&text, "; and ", silent.size() - kMostNamed, " more");
  }
  return text;
}

bool DeviceAgreement::IsDecided(const Ask& ask, bool is_late, AgreedDevices& reply) const {
  if (const int rank = FirstByHost(ask.ranks); rank >= 0) {
    reply.goes_by_host = true;
    reply.why = absl::StrCat(name_(rank), ": ", words_.at(rank).why());
    return true;
  }
  const std::vector<int> silent = Silent(ask.ranks);
  if (silent.empty()) return true;
  if (is_late) reply.why = Describe(silent);
  return is_late;
}

void DeviceAgreement::AnswerDecided(const std::function<bool(const Ask&)>& is_late) {
  Answer([this, &is_late](const Ask& ask,
                          AgreedDevices& reply) { return IsDecided(ask, is_late(ask), reply); },
         absl::OkStatus());
}

void DeviceAgreement::Answer(const std::function<bool(const Ask&, AgreedDevices&)>& fits,
                             const absl::Status& status) {
  std::vector<std::pair<Done, AgreedDevices>> answers;
  std::erase_if(asks_, [&](Waiting& waiting) {
    AgreedDevices reply;
    if (!fits(waiting.ask, reply)) return false;
    answers.emplace_back(std::move(waiting.ask.done), std::move(reply));
    return true;
  });
  for (const auto& [done, reply] : answers) done(status, reply);
}

}  // namespace ringd
