// The jobs that have ended here, for whoever looks for them afterwards.
#ifndef RINGD_DAEMON_JOBS_HISTORY_JOB_HISTORY_H_
#define RINGD_DAEMON_JOBS_HISTORY_JOB_HISTORY_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>

#include "proto/rpc/admin.pb.h"

namespace ringd {

// Keeps the last jobs of each user, in memory only.
//
// Thread safety: none.
// Invariants:
//   1. It holds at most `jobs_per_user` jobs of a user, and kMostUsers times as many in all. Beyond
//      that the oldest job of the user who has most goes: nobody can push the jobs of others out by
//      running many.
//   2. What it keeps of a job has less than 24 KiB, whatever was said of it: the lists in it are
//      cut, and say by how much, and so are texts.
class JobHistory {
 public:
  struct Entry {
    std::uint64_t number = 0;  // grows from job to job
    v1::Job job;
  };

  static constexpr std::size_t kMostUsers = 16;
  static constexpr int kMembersKept = 64;
  static constexpr std::size_t kFailureBytesKept = 4096;
  static constexpr std::size_t kWordsBytesKept = 1024;  // of a job's name, and the like
  static constexpr std::size_t kHostBytesKept = 128;
  static constexpr std::size_t kStateBytesKept = 32;

  explicit JobHistory(std::size_t jobs_per_user) : jobs_per_user_(jobs_per_user) {}

  // To what is kept of it: an engine that a rank has taken over may say anything of its jobs. May
  // take milliseconds.
  static void Cut(v1::Job& job);
  // Keeps what is said of a job, which has ended now. Requirement: it has been cut.
  void Add(v1::Job job);
  // Fewer than before: the oldest go.
  void SetLimit(std::size_t jobs_per_user);

  // The last job whose number is smaller than `number`; null if there is none. Valid until the next
  // change.
  const Entry* Before(std::uint64_t number) const;

  std::size_t size() const noexcept { return jobs_.size(); }

 private:
  using Jobs = std::map<std::uint64_t, Entry>;

  void RemoveOldestOf(uid_t uid);
  void KeepLimits();

  std::size_t jobs_per_user_;
  std::uint64_t next_number_ = 1;
  Jobs jobs_;  // by number
  std::map<uid_t, std::size_t> counts_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_HISTORY_JOB_HISTORY_H_
