// What the registrations of one user may hold of ringd's memory.
#ifndef RINGD_DAEMON_SESSIONS_REGISTRATION_ACCOUNT_H_
#define RINGD_DAEMON_SESSIONS_REGISTRATION_ACCOUNT_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "proto/base/mutex.h"
#include "proto/shm/user_account.h"

namespace ringd {

// Thread safety: all methods from any thread.
// Ownership: borrows the memory behind `count`.
class RegistrationAccount {
 public:
  // `count`: what the user's engines have together; without it the user has this one engine.
  RegistrationAccount(uid_t uid, std::uint64_t limit, std::optional<UserCount> count = {})
      : uid_(uid), limit_(limit), count_(count) {}

  // kResourceExhausted: it would be more than the limit; the message says how much, whose and which
  // setting. Nothing is taken then.
  absl::Status Take(std::uint64_t bytes) noexcept;
  void Return(std::uint64_t bytes) noexcept;
  // What is taken stays, also if it is more.
  void SetLimit(std::uint64_t limit) noexcept { limit_.store(limit, std::memory_order_relaxed); }
  // By all engines of the user.
  std::uint64_t used() const noexcept;

 private:
  absl::Status TakeShared(std::uint64_t bytes, std::uint64_t limit) noexcept;
  absl::Status Refuse(std::uint64_t wanted, std::uint64_t limit) const;

  const uid_t uid_;
  std::atomic<std::uint64_t> limit_;    // relaxed: as used_
  std::atomic<std::uint64_t> used_{0};  // relaxed: a number, nothing is published by it
  std::optional<UserCount> count_;      // takes the place of used_
};

// Bytes taken from an account, given back when this goes.
//
// Thread safety: none, as an integer.
class RegistrationBytes {
 public:
  RegistrationBytes() = default;
  explicit RegistrationBytes(std::shared_ptr<RegistrationAccount> account)
      : account_(std::move(account)) {}
  RegistrationBytes(const RegistrationBytes&) = delete;
  RegistrationBytes& operator=(const RegistrationBytes&) = delete;
  ~RegistrationBytes() {
    if (account_ != nullptr) account_->Return(bytes_);
  }

  // As RegistrationAccount::Take.
  absl::Status Take(std::uint64_t bytes);
  // Takes over so many bytes of `other`, which has them, and its account if this has none.
  void TakeOver(RegistrationBytes& other, std::uint64_t bytes) noexcept;
  // Gives back so many of them.
  void GiveBack(std::uint64_t bytes) noexcept;

  const std::shared_ptr<RegistrationAccount>& account() const noexcept { return account_; }
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  std::shared_ptr<RegistrationAccount> account_;
  std::uint64_t bytes_ = 0;
};

// The accounts of all users who have sessions or jobs.
//
// Thread safety: all methods from any thread.
// Ownership: borrows the memory behind `count`.
class RegistrationAccounts {
 public:
  // With `count` there is one user, who has other engines, too.
  explicit RegistrationAccounts(std::uint64_t limit, std::optional<UserCount> count = {})
      : count_(count), limit_(limit) {}

  // The user's account: the same as long as anybody holds it.
  std::shared_ptr<RegistrationAccount> Of(uid_t uid) ABSL_LOCKS_EXCLUDED(mutex_);
  // For those that there are and those to come.
  void SetLimit(std::uint64_t limit) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const std::optional<UserCount> count_;
  Mutex mutex_;
  std::uint64_t limit_ ABSL_GUARDED_BY(mutex_);
  std::map<uid_t, std::weak_ptr<RegistrationAccount>> accounts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SESSIONS_REGISTRATION_ACCOUNT_H_
