#include "daemon/peers/name_resolver.h"

#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <deque>
#include <map>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/base/mutex.h"

namespace ringd {
namespace {

// getaddrinfo's error, and in `addresses` what it has found.
int Look(const HostPort& address, int flags, std::vector<std::string>& addresses) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* list = nullptr;
  const int error =
      ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &list);
  if (error != 0) return error;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    std::array<char, NI_MAXHOST> host{};
    if (::getnameinfo(entry->ai_addr, entry->ai_addrlen, host.data(), host.size(), nullptr, 0,
                      NI_NUMERICHOST) == 0 &&
        addresses.size() < NameResolver::kMostAddresses) {
      addresses.push_back(FormatHostPort({host.data(), address.port}));
    }
  }
  return addresses.empty() ? EAI_NONAME : 0;
}

// Before a name that was not known is asked for again.
constexpr std::chrono::milliseconds kPause{500};

}  // namespace

struct NameResolver::State {
  struct Question {
    HostPort address;
    Clock::time_point deadline;
    Done done;
  };
  struct User {
    std::size_t running = 0;
    std::deque<Question> waiting;
  };

  absl::StatusOr<std::vector<std::string>> Ask(const Question& question) {
    for (;;) {
      std::vector<std::string> addresses;
      const int error = Look(question.address, AI_ADDRCONFIG, addresses);
      if (error == 0) return addresses;
      const Clock::time_point again = Clock::now() + kPause;
      if (again >= question.deadline) {
        return absl::DeadlineExceededError(absl::StrCat(
            "the name ", question.address.host, " stands for no address: ", ::gai_strerror(error)));
      }
      MutexLock lock(mutex);
      while (!stopped && Clock::now() < again) stirred.WaitUntil(mutex, again);
      if (stopped) return absl::CancelledError();
    }
  }

  // Calls `done`, unless Stop has been called.
  void Answer(const Done& done, absl::StatusOr<std::vector<std::string>> answer) {
    {
      MutexLock lock(mutex);
      if (stopped) return;
      ++calling;
    }
    done(std::move(answer));
    MutexLock lock(mutex);
    --calling;
    stirred.NotifyAll();
  }

  // On a thread of its own: answers the question, and what waits behind it.
  void Run(uid_t user, Question question) {
    for (;;) {
      Answer(question.done, Ask(question));
      MutexLock lock(mutex);
      if (stopped) return;
      User& entry = users[user];
      if (entry.waiting.empty()) {
        if (--entry.running == 0) users.erase(user);
        return;
      }
      question = std::move(entry.waiting.front());
      entry.waiting.pop_front();
    }
  }

  Mutex mutex;
  CondVar stirred;
  bool stopped ABSL_GUARDED_BY(mutex) = false;
  int calling ABSL_GUARDED_BY(mutex) = 0;  // callbacks under way
  std::map<uid_t, User> users ABSL_GUARDED_BY(mutex);
};

NameResolver::NameResolver() : state_(std::make_shared<State>()) {}

NameResolver::~NameResolver() { Stop(); }

void NameResolver::Resolve(uid_t user, const HostPort& address, Clock::time_point deadline,
                           Done done) {
  std::vector<std::string> numeric;
  if (Look(address, AI_NUMERICHOST, numeric) == 0) return state_->Answer(done, std::move(numeric));
  State::Question question{address, deadline, std::move(done)};
  {
    MutexLock lock(state_->mutex);
    if (state_->stopped) return;
    State::User& entry = state_->users[user];
    if (entry.running >= kMostAtOnce) {
      entry.waiting.push_back(std::move(question));
      return;
    }
    ++entry.running;
  }
  try {
    std::thread([state = state_, user, question]() mutable {
      ::pthread_setname_np(::pthread_self(), "ringd-resolve");
      state->Run(user, std::move(question));
    }).detach();
  } catch (const std::system_error& error) {
    {
      MutexLock lock(state_->mutex);
      --state_->users[user].running;
    }
    state_->Answer(question.done,
                   absl::UnavailableError(absl::StrCat("the name ", address.host,
                                                       " can't be looked up: ", error.what())));
  }
}

void NameResolver::Stop() {
  MutexLock lock(state_->mutex);
  state_->stopped = true;
  state_->users.clear();
  state_->stirred.NotifyAll();
  while (state_->calling > 0) {
    state_->stirred.WaitUntil(state_->mutex, Clock::now() + std::chrono::seconds(1));
  }
}

}  // namespace ringd
