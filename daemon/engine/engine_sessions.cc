// Trainers that come to join, submit and go.
#include <sys/socket.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/engine/engine.h"
#include "daemon/logging/log.h"

namespace ringd {
namespace {

// Taken from one session before the next one's turn.
constexpr int kSubmissionsPerTurn = 256;

}  // namespace

void Engine::Attach(std::unique_ptr<SessionResources> resources) {
  if (const absl::Status mapped = resources->MapMemory(); !mapped.ok()) {
    HangUp(resources->lifeline.get(),
           absl::StrCat("its memory can't be mapped: ", mapped.message()));
    commands_.Post([this, id = resources->id] {
      NoteSessionGiven();
      TellSessionEnded(id, false);
    });
    isolated_.Destroy(std::shared_ptr<const SessionResources>(std::move(resources)));
    return;
  }
  session_count_.fetch_add(1, std::memory_order_relaxed);
  auto book = std::make_shared<RegistrationBook>(resources->id, accounts_.Of(resources->peer.uid));
  {
    MutexLock lock(books_mutex_);
    books_[resources->token] = book;
  }
  // std::function needs something copyable.
  auto shared = std::make_shared<std::unique_ptr<SessionResources>>(std::move(resources));
  commands_.Post([this, shared, book = std::move(book)] {
    // A session's end frees all that it has registered, which may be much, and closes what its
    // client could lay hands on.
    std::shared_ptr<Session> session(new Session(std::move(*shared)), [this](Session* ended) {
      isolated_.Destroy(std::shared_ptr<const Session>(ended));
    });
    const SessionId id = session->id();
    events_.Add(session->event_fd(), EventKind::kDoorbell, id);
    events_.Add(session->lifeline(), EventKind::kHangUp, id);
    events_.Add(session->pidfd(), EventKind::kProcessEnd, id);
    tokens_[session->token()] = id;
    NoteSessionGiven();
    sessions_[id] = SessionEntry{std::move(session), nullptr, book};
  });
}

void Engine::NoteSessionGiven() {
  ++sessions_given_;
  idle_told_ = false;
}

void Engine::TellSessionEnded(SessionId id, bool for_cause) const {
  if (options_.listener != nullptr) options_.listener->OnSessionEnded(id, for_cause);
}

void Engine::EndAllSessions() {
  const std::string why(WhyStopped().message());
  while (!sessions_.empty()) EndSession(sessions_.begin()->first, why, false);
}

void Engine::EndSession(SessionId id, const std::string& reason, bool for_cause) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  SessionEntry entry = std::move(found->second);
  sessions_.erase(found);
  session_count_.fetch_sub(1, std::memory_order_relaxed);
  Session& session = *entry.session;
  events_.Remove(session.event_fd());
  events_.Remove(session.lifeline());
  events_.Remove(session.pidfd());
  tokens_.erase(session.token());
  {
    MutexLock lock(books_mutex_);
    books_.erase(session.token());
  }
  if (for_cause) {
    LogWarning(
        absl::StrCat("session ", id.value(), " of pid ", session.peer().pid, " ended: ", reason),
        entry.job == nullptr ? LogFields() : entry.job->Fields(session));
  }
  session.NotifyLast(NoticeKind::kSessionEnded, reason);
  // The client hears the end now, also if its job holds the session's memory for a while.
  ::shutdown(session.lifeline(), SHUT_RDWR);
  if (entry.job != nullptr) {
    // Its call has not come: ringd or this engine did not take it in time.
    if (!for_cause && session.SaysItLeaves()) entry.job->Leave(session, Clock::now());
    entry.job->OnSessionLost(session, reason, for_cause, Clock::now());
  }
  calls_.Post([book = std::move(entry.book)] {});
  TellSessionEnded(id, for_cause);
}

std::size_t Engine::PollSessions(Clock::time_point now) {
  std::size_t work = 0;
  bool staged_news = false;
  std::vector<std::pair<SessionId, absl::Status>> violators;
  for (auto& [id, entry] : sessions_) {
    for (int i = 0; i < kSubmissionsPerTurn; ++i) {
      absl::Status status;
      const auto submission = entry.session->Next(status);
      if (!submission.has_value()) {
        if (!status.ok()) {
          violators.emplace_back(id, std::move(status));
        }
        break;
      }
      ++work;
      if (submission->registration == nullptr) {
        entry.session->Complete(*submission, absl::OkStatus());
        continue;
      }
      // Registrations come only after a join, so there is a job.
      entry.job->Submit(*entry.session, *submission, now);
    }
    if (entry.session->TakeStagedNews()) {
      staged_news = true;
      ++work;
    }
  }
  // What was not ready may be: executions are asked in this turn, reducers ask.
  if (staged_news) reducers_.Tell();
  for (const auto& [id, violation] : violators) {
    EndSession(id, absl::StrCat("broke the protocol: ", violation.message()), true);
    ++work;
  }
  return work;
}

std::shared_ptr<RegistrationBook> Engine::FindBook(absl::string_view token) {
  MutexLock lock(books_mutex_);
  const auto found = books_.find(std::string(token));
  return found == books_.end() ? nullptr : found->second;
}

void Engine::FlushNotices(Clock::time_point now) {
  std::vector<std::pair<SessionId, absl::Status>> deaf;
  for (const auto& [id, entry] : sessions_) {
    if (!entry.session->NoticesWait()) continue;
    if (absl::Status status = entry.session->FlushNotices(now); !status.ok()) {
      deaf.emplace_back(id, std::move(status));
    }
  }
  for (const auto& [id, why] : deaf) EndSession(id, std::string(why.message()), true);
}

Engine::SessionEntry* Engine::FindToken(absl::string_view token) {
  const auto id = tokens_.find(std::string(token));
  if (id == tokens_.end()) return nullptr;
  return &sessions_.at(id->second);
}

absl::StatusOr<Engine::SessionEntry*> Engine::FindMember(SessionId id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return UnknownToken();
  SessionEntry& entry = found->second;
  if (entry.job == nullptr) return NotJoined();
  if (absl::Status status = entry.job->MayRegister(*entry.session); !status.ok()) return status;
  return &entry;
}

}  // namespace ringd
