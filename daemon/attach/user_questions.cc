#include "daemon/attach/user_questions.h"

#include <pthread.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace ringd {

struct UserQuestions::State {
  using Key = std::pair<uid_t, gid_t>;
  struct Question {
    std::shared_ptr<Admission> admission;
    PeerCredentials peer;
  };
  struct Kept {
    std::shared_ptr<Admission> admission;  // by which it was said
    UserVerdict verdict;
    Clock::time_point until;
  };

  static Key KeyOf(const PeerCredentials& peer) { return {peer.uid, peer.gid}; }

  // On a thread of its own: answers the question, and what waits.
  void Run(Question question) ABSL_LOCKS_EXCLUDED(mutex) {
    for (;;) {
      UserVerdict verdict = ask(*question.admission, question.peer);
      const MutexLock lock(mutex);
      KeepLocked(question, std::move(verdict));
      if (!stopped) on_answer();
      if (stopped || waiting.empty()) {
        --running;
        return;
      }
      question = std::move(waiting.front());
      waiting.pop_front();
    }
  }

  void KeepLocked(const Question& question, UserVerdict verdict)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const Key key = KeyOf(question.peer);
    asked.erase(key);
    const Clock::time_point now = Clock::now();
    std::erase_if(kept, [now](const auto& entry) { return entry.second.until <= now; });
    if (kept.size() >= kMostKept) {
      kept.erase(std::min_element(kept.begin(), kept.end(), [](const auto& a, const auto& b) {
        return a.second.until < b.second.until;
      }));
    }
    kept[key] = {question.admission, std::move(verdict), now + UserQuestions::kKept};
  }

  std::size_t AskedOfLocked(uid_t uid) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::size_t count = 0;
    for (auto it = asked.lower_bound({uid, 0}); it != asked.end() && it->first == uid; ++it) {
      ++count;
    }
    return count;
  }

  const Ask ask;
  const std::function<void()> on_answer;
  Mutex mutex;
  bool stopped ABSL_GUARDED_BY(mutex) = false;
  std::size_t running ABSL_GUARDED_BY(mutex) = 0;
  std::deque<Question> waiting ABSL_GUARDED_BY(mutex);
  std::set<Key> asked ABSL_GUARDED_BY(mutex);  // and not answered
  std::map<Key, Kept> kept ABSL_GUARDED_BY(mutex);

  State(Ask what, std::function<void()> when) : ask(std::move(what)), on_answer(std::move(when)) {}
};

UserQuestions::UserQuestions(Ask ask, std::function<void()> on_answer)
    : state_(std::make_shared<State>(std::move(ask), std::move(on_answer))) {}

UserQuestions::~UserQuestions() {
  const MutexLock lock(state_->mutex);
  state_->stopped = true;
  state_->waiting.clear();
}

std::optional<UserVerdict> UserQuestions::Find(const std::shared_ptr<Admission>& admission,
                                               const PeerCredentials& peer) {
  const State::Key key = State::KeyOf(peer);
  State::Question question{admission, peer};
  {
    const MutexLock lock(state_->mutex);
    const auto found = state_->kept.find(key);
    if (found != state_->kept.end() && found->second.admission == admission &&
        found->second.until > Clock::now()) {
      return found->second.verdict;
    }
    if (state_->asked.contains(key) || state_->AskedOfLocked(peer.uid) >= kMostOfUser) {
      return std::nullopt;
    }
    state_->asked.insert(key);
    if (state_->running >= kMostAtOnce) {
      state_->waiting.push_back(std::move(question));
      return std::nullopt;
    }
    ++state_->running;
  }
  try {
    std::thread([state = state_, question]() mutable {
      ::pthread_setname_np(::pthread_self(), "ringd-users");
      state->Run(std::move(question));
    }).detach();
  } catch (const std::system_error&) {
    // Whoever comes next asks again.
    const MutexLock lock(state_->mutex);
    state_->asked.erase(key);
    --state_->running;
  }
  return std::nullopt;
}

}  // namespace ringd
