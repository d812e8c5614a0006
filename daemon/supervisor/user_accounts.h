// The segments by which the engines of one user count together what he has on the node
// (proto/shm/user_account.h).
#ifndef RINGD_DAEMON_SUPERVISOR_USER_ACCOUNTS_H_
#define RINGD_DAEMON_SUPERVISOR_USER_ACCOUNTS_H_

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "proto/base/memory_mapping.h"
#include "proto/base/unique_fd.h"
#include "proto/shm/user_account.h"

namespace ringd {

// One user's. The supervisor believes nothing in it.
//
// Thread safety: any thread.
// Ownership: owns the segment; engines that have mapped it keep the memory.
class UserAccount {
 public:
  UserAccount(UniqueFd fd, MemoryMapping mapping)
      : fd_(std::move(fd)), mapping_(std::move(mapping)) {}

  // For the engine, which may write it.
  int fd() const noexcept { return fd_.get(); }
  // Of an engine that has gone: what it had is free. Requirement: slot < kMostEngines.
  void Clear(std::size_t slot) noexcept;

 private:
  const UniqueFd fd_;
  const MemoryMapping mapping_;
};

// Thread safety: one thread at a time.
// Ownership: an account lasts as long as its user has engines.
class UserAccounts {
 public:
  //   What the kernel says.
  absl::StatusOr<std::shared_ptr<UserAccount>> Of(uid_t uid);

 private:
  std::map<uid_t, std::weak_ptr<UserAccount>> accounts_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_USER_ACCOUNTS_H_
