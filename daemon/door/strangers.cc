#include "daemon/door/strangers.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/door/door_poll.h"
#include "daemon/logging/log.h"

namespace ringd {
namespace {

constexpr std::uint32_t kLogLines = 20;
constexpr Clock::duration kLogPeriod = std::chrono::seconds(10);

}  // namespace

Strangers::Strangers(int epoll, DoorReceptions* receptions, const Dials* dials,
                     std::string own_name, std::uint32_t flags, StrangerLimits limits)
    : epoll_(epoll),
      receptions_(receptions),
      dials_(dials),
      own_name_(std::move(own_name)),
      flags_(flags),
      limits_(limits),
      log_limiter_(kLogLines, kLogPeriod) {}

void Strangers::Add(AcceptedSocket accepted, Clock::time_point now) {
  if (places_.size() >= limits_.most) DropOne(now);
  const std::uint64_t key = next_key_++;
  const int fd = accepted.fd.get();
  ++by_source_[accepted.source];
  const auto place =
      places_
          .emplace(key, Stranger(std::move(accepted), DoorAnswerer(flags_, own_name_),
                                 now + limits_.patience))
          .first;
  // The kernel tells at once what has come already.
  if (!WatchAtDoor(epoll_, fd, kHandshakeEvents, key)) Erase(place);
}

void Strangers::OnEvent(std::uint64_t key, Clock::time_point now) {
  const auto place = places_.find(key);
  if (place == places_.end()) return;  // dropped while its event waited in the batch
  if (early_.contains(key)) {
    if (place->second.HasClosed()) Erase(place);
    return;
  }
  Drive(place, now);
}

void Strangers::Drive(Places::iterator place, Clock::time_point now) {
  Stranger& stranger = place->second;
  Stranger::Progress progress = stranger.Advance();
  if (progress == Stranger::Progress::kAsked) {
    if (!Judge(place, now)) return;
    if (stranger.answerer().state() == DoorState::kRefused) LogRefusal(stranger, now);
    progress = stranger.Advance();
  }
  if (progress == Stranger::Progress::kProven) return Admit(place);
  if (progress == Stranger::Progress::kGone) {
    if (stranger.answerer().state() == DoorState::kBroken) LogClosed(stranger, stranger.why(), now);
    Erase(place);
  }
}

bool Strangers::Judge(Places::iterator place, Clock::time_point now) {
  Stranger& stranger = place->second;
  DoorAnswerer& answerer = stranger.answerer();
  if (dials_->IsOwn(answerer.hello().nonce)) {
    answerer.Refuse(DoorVerdict::kOneself);
    return true;
  }
  const std::shared_ptr<DoorReception> reception = receptions_->Get(answerer.hello().purpose);
  DoorConsideration answer;
  if (reception != nullptr) reception->Consider(answerer.hello(), answer);
  const auto early = early_.find(place->first);
  if (answer.verdict == DoorVerdict::kUnknownSubject) {
    const bool waits = early == early_.end();
    if (waits || now < early->second) {
      if (waits) {
        early_.emplace(place->first, std::min(now + limits_.early, stranger.deadline()));
      }
      return false;
    }
  }
  if (early != early_.end()) early_.erase(early);
  if (answer.verdict == DoorVerdict::kWelcome) {
    stranger.Decide(answer.keys, answer.otherwise);
  } else {
    answerer.Refuse(answer.verdict);
  }
  if (reception != nullptr && answerer.state() == DoorState::kRefused) {
    reception->OnRefused(answerer.hello(), answerer.verdict(), stranger.Describe());
  }
  return true;
}

void Strangers::Reconsider(Clock::time_point now) {
  std::vector<std::uint64_t> keys;
  for (const auto& [key, until] : early_) keys.push_back(key);
  for (const std::uint64_t key : keys) {
    if (const auto place = places_.find(key); place != places_.end()) Drive(place, now);
  }
}

void Strangers::Admit(Places::iterator place) {
  Stranger& stranger = place->second;
  const DoorAnswerer& answerer = stranger.answerer();
  const std::shared_ptr<DoorReception> reception = receptions_->Get(answerer.hello().purpose);
  UnwatchAtDoor(epoll_, stranger.socket());
  DoorArrival arrival{answerer.hello(), stranger.key(), answerer.session_key(),
                      stranger.TakeSocket(), stranger.Describe()};
  Erase(place);
  if (reception != nullptr) reception->Admit(std::move(arrival));
}

void Strangers::DropOne(Clock::time_point now) {
  std::size_t most = 0;
  for (const auto& [host, count] : by_source_) most = std::max(most, count);
  const auto victim = std::find_if(places_.begin(), places_.end(), [&](const auto& entry) {
    return by_source_.at(entry.second.source()) == most;
  });
  LogClosed(victim->second,
            absl::StrCat("all ", limits_.most, " places for connections that have proved nothing ",
                         "are taken, ", most, " of them from there"),
            now);
  Erase(victim);
}

void Strangers::DropExpired(Clock::time_point now) {
  // In order of arrival, so mostly of time. Whose time is over is judged once more, for good.
  std::vector<std::uint64_t> late;
  for (const auto& [key, until] : early_) {
    if (until <= now) late.push_back(key);
  }
  for (const std::uint64_t key : late) Drive(places_.find(key), now);
  while (!places_.empty() && places_.begin()->second.deadline() <= now) {
    const Stranger& stranger = places_.begin()->second;
    if (!stranger.refused()) LogClosed(stranger, "it has not proved in time whose it is", now);
    Erase(places_.begin());
  }
}

void Strangers::Erase(Places::iterator place) {
  early_.erase(place->first);
  const auto host = by_source_.find(place->second.source());
  if (--host->second == 0) by_source_.erase(host);
  places_.erase(place);
}

Clock::time_point Strangers::NextDeadline() const noexcept {
  Clock::time_point next =
      places_.empty() ? Clock::time_point::max() : places_.begin()->second.deadline();
  for (const auto& [key, until] : early_) next = std::min(next, until);
  return next;
}

void Strangers::Clear() {
  places_.clear();
  early_.clear();
  by_source_.clear();
}

void Strangers::LogRefusal(const Stranger& stranger, Clock::time_point now) {
  const DoorAnswerer& answerer = stranger.answerer();
  switch (answerer.verdict()) {
    case DoorVerdict::kWelcome:
    case DoorVerdict::kUnknownSubject:  // it is early, as a rule
    case DoorVerdict::kNoOtherNodes:    // the reception tells of these
    case DoorVerdict::kDraining:
    case DoorVerdict::kOneself:
      return;
    case DoorVerdict::kWrongKey:
      return LogLine(absl::StrCat("a connection of ", stranger.Describe(),
                                  " was refused: it has another cluster key or job secret"),
                     now);
    case DoorVerdict::kFull:
      return LogLine(absl::StrCat("a connection of ", stranger.Describe(),
                                  " was refused: too many wait here already"),
                     now);
    case DoorVerdict::kVersion:
      return LogLine(absl::StrCat("a connection of ", stranger.Describe(),
                                  " was refused: it speaks door version ", answerer.hello().version,
                                  ", this ringd ", kDoorVersion),
                     now);
  }
}

void Strangers::LogClosed(const Stranger& stranger, absl::string_view why, Clock::time_point now) {
  LogLine(absl::StrCat("a connection of ", stranger.Describe(), " was closed: ", why), now);
}

void Strangers::LogLine(std::string line, Clock::time_point now) {
  const std::optional<std::uint64_t> suppressed = log_limiter_.Pass(now);
  if (!suppressed.has_value()) return;
  if (*suppressed > 0) {
    absl::StrAppend(&line, " (", *suppressed, " similar lines were left out before)");
  }
  LogWarning(line);
}

}  // namespace ringd
