#include "daemon/supervisor/user_accounts.h"

#include "absl/strings/str_cat.h"
#include "proto/base/memfd.h"

namespace ringd {

void UserAccount::Clear(std::size_t slot) noexcept {
  UserAccountSlot& had = reinterpret_cast<UserAccountSegment*>(mapping_.data())->slots[slot];
  had.registration_bytes.store(0, std::memory_order_relaxed);
  had.communicators.store(0, std::memory_order_relaxed);
}

absl::StatusOr<std::shared_ptr<UserAccount>> UserAccounts::Of(uid_t uid) {
  std::erase_if(accounts_, [](const auto& entry) { return entry.second.expired(); });
  if (const auto found = accounts_.find(uid); found != accounts_.end()) {
    if (auto account = found->second.lock()) return account;
  }
  absl::StatusOr<UniqueFd> fd =
      CreateSealedMemfd(absl::StrCat("ringd-account-", uid), sizeof(UserAccountSegment));
  if (!fd.ok()) return fd.status();
  absl::StatusOr<MemoryMapping> mapping = MemoryMapping::Map(fd->get(), sizeof(UserAccountSegment));
  if (!mapping.ok()) return mapping.status();
  auto& segment = *reinterpret_cast<UserAccountSegment*>(mapping->data());
  segment.magic = kUserAccountMagic;
  segment.version = kUserAccountVersion;
  auto account = std::make_shared<UserAccount>(*std::move(fd), *std::move(mapping));
  accounts_[uid] = account;
  return account;
}

}  // namespace ringd
