// What the registrations of one user may hold of ringd's memory.
#ifndef RINGD_DAEMON_SESSIONS_REGISTRATION_ACCOUNT_H_
#define RINGD_DAEMON_SESSIONS_REGISTRATION_ACCOUNT_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "proto/base/mutex.h"

namespace ringd {

// Thread safety: all methods from any thread.
class RegistrationAccount {
 public:
  RegistrationAccount(uid_t uid, std::uint64_t limit) : uid_(uid), limit_(limit) {}

  // kResourceExhausted: it would be more than the limit; the message says how much, whose and which
  // setting. Nothing is taken then.
  absl::Status Take(std::uint64_t bytes) noexcept;
  void Return(std::uint64_t bytes) noexcept { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  // What is taken stays, also if it is more.
  void SetLimit(std::uint64_t limit) noexcept { limit_.store(limit, std::memory_order_relaxed); }
  std::uint64_t used() const noexcept { return used_.load(std::memory_order_relaxed); }

 private:
  const uid_t uid_;
  std::atomic<std::uint64_t> limit_;    // relaxed: as used_
  std::atomic<std::uint64_t> used_{0};  // relaxed: a number, nothing is published by it
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
class RegistrationAccounts {
 public:
  explicit RegistrationAccounts(std::uint64_t limit) : limit_(limit) {}

  // The user's account: the same as long as anybody holds it.
  std::shared_ptr<RegistrationAccount> Of(uid_t uid) ABSL_LOCKS_EXCLUDED(mutex_);
  // For those that there are and those to come.
  void SetLimit(std::uint64_t limit) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  Mutex mutex_;
  std::uint64_t limit_ ABSL_GUARDED_BY(mutex_);
  std::map<uid_t, std::weak_ptr<RegistrationAccount>> accounts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SESSIONS_REGISTRATION_ACCOUNT_H_
