// What a session has described already, for the threads on which its calls arrive.
#ifndef RINGD_DAEMON_SESSIONS_REGISTRATION_BOOK_H_
#define RINGD_DAEMON_SESSIONS_REGISTRATION_BOOK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "daemon/sessions/registration_account.h"
#include "proto/base/mutex.h"
#include "proto/types/ids.h"

namespace ringd {

// The numbers that stand in a reply.
struct RegistrationNumbers {
  std::uint32_t registration = 0;
  std::uint32_t tensor = 0;
  std::uint32_t meta = 0;
};

// Equal descriptions are answered from here, so that they cost the engine nothing.
//
// Thread safety: all methods from any thread.
// Ownership: shared by the engine and the calls under way; what a session may hold is in the
//   account.
// Invariant: what is added and removed on one thread in the order in which the engine gives and
//   takes numbers is what lives.
class RegistrationBook {
 public:
  // What the checks have to know of the job that the session has joined.
  struct Place {
    int size = 0;
    int local_size = 0;
  };

  RegistrationBook(SessionId session, std::shared_ptr<RegistrationAccount> account)
      : session_(session), account_(std::move(account)) {}

  SessionId session() const noexcept { return session_; }
  const std::shared_ptr<RegistrationAccount>& account() const noexcept { return account_; }

  void SetPlace(const Place& place) {
    MutexLock lock(mutex_);
    place_ = place;
  }
  // Nothing before the session has joined a job.
  std::optional<Place> place() const {
    MutexLock lock(mutex_);
    return place_;
  }

  std::optional<RegistrationNumbers> Find(const std::string& key) const {
    MutexLock lock(mutex_);
    const auto found = numbers_.find(key);
    if (found == numbers_.end()) return std::nullopt;
    return found->second;
  }
  void Add(std::string key, const RegistrationNumbers& numbers) {
    MutexLock lock(mutex_);
    numbers_.insert_or_assign(std::move(key), numbers);
  }
  // Forgets the description if this is its number.
  void Remove(const std::string& key, std::uint32_t registration) {
    MutexLock lock(mutex_);
    const auto found = numbers_.find(key);
    if (found != numbers_.end() && found->second.registration == registration) {
      numbers_.erase(found);
    }
  }
  std::size_t size() const {
    MutexLock lock(mutex_);
    return numbers_.size();
  }

 private:
  const SessionId session_;
  const std::shared_ptr<RegistrationAccount> account_;
  mutable Mutex mutex_;
  std::optional<Place> place_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<std::string, RegistrationNumbers> numbers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SESSIONS_REGISTRATION_BOOK_H_
