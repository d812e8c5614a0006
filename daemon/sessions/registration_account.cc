#include "daemon/sessions/registration_account.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace ringd {

absl::Status RegistrationAccount::Take(std::uint64_t bytes) noexcept {
  const std::uint64_t limit = limit_.load(std::memory_order_relaxed);
  if (count_.has_value()) return TakeShared(bytes, limit);
  std::uint64_t used = used_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit || used > limit - bytes) return Refuse(used + bytes, limit);
  } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  return absl::OkStatus();
}

absl::Status RegistrationAccount::TakeShared(std::uint64_t bytes, std::uint64_t limit) noexcept {
  if (bytes > limit) return Refuse(count_->Sum() + bytes, limit);
  count_->Add(bytes);
  const std::uint64_t sum = count_->Sum();
  if (sum <= limit) return absl::OkStatus();
  count_->Subtract(bytes);
  return Refuse(sum, limit);
}

absl::Status RegistrationAccount::Refuse(std::uint64_t wanted, std::uint64_t limit) const {
  return absl::ResourceExhaustedError(absl::StrCat(
      "the tensors of uid ", uid_, " would take ", wanted,
      " bytes of this ringd's memory, of which a user may have ", limit,
      " (setting registration_bytes_per_user): give tensors that come again the same name and "
      "shape each time, or let jobs end"));
}

void RegistrationAccount::Return(std::uint64_t bytes) noexcept {
  if (count_.has_value()) return count_->Subtract(bytes);
  used_.fetch_sub(bytes, std::memory_order_relaxed);
}

std::uint64_t RegistrationAccount::used() const noexcept {
  return count_.has_value() ? count_->Sum() : used_.load(std::memory_order_relaxed);
}

absl::Status RegistrationBytes::Take(std::uint64_t bytes) {
  if (absl::Status status = account_->Take(bytes); !status.ok()) return status;
  bytes_ += bytes;
  return absl::OkStatus();
}

void RegistrationBytes::TakeOver(RegistrationBytes& other, std::uint64_t bytes) noexcept {
  if (account_ == nullptr) account_ = other.account_;
  bytes =
      std::min(bytes, other.bytes_);  // an estimate that was too small must not turn a count over
  other.bytes_ -= bytes;
  bytes_ += bytes;
}

void RegistrationBytes::GiveBack(std::uint64_t bytes) noexcept {
  bytes = std::min(bytes, bytes_);
  bytes_ -= bytes;
  if (account_ != nullptr) account_->Return(bytes);
}

std::shared_ptr<RegistrationAccount> RegistrationAccounts::Of(uid_t uid) {
  MutexLock lock(mutex_);
  std::erase_if(accounts_, [](const auto& entry) { return entry.second.expired(); });
  if (auto known = accounts_[uid].lock()) return known;
  auto account = std::make_shared<RegistrationAccount>(uid, limit_, count_);
  accounts_[uid] = account;
  return account;
}

void RegistrationAccounts::SetLimit(std::uint64_t limit) {
  MutexLock lock(mutex_);
  limit_ = limit;
  for (const auto& [uid, known] : accounts_) {
    if (const auto account = known.lock()) account->SetLimit(limit);
  }
}

}  // namespace ringd
