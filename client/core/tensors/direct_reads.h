// Reading tensors of a one-node job's other ranks where they are, in ordinary memory.
#ifndef RINGD_CLIENT_CORE_TENSORS_DIRECT_READS_H_
#define RINGD_CLIENT_CORE_TENSORS_DIRECT_READS_H_

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "proto/base/mutex.h"
#include "proto/shm/job_segment.h"

namespace ringd::client {

// RINGD_DIRECT_READ.
enum class DirectReading : std::uint8_t {
  kOff,
  kIfAllowed,
  // Besides asks Yama, where the kernel has it, to let any process of this user trace this one, as
  // /proc/sys/kernel/yama/ptrace_scope = 0 would for all processes. Not the default: it undoes a
  // protection for the whole process, and nothing but the user can know whether that is wanted.
  kAllowToAll,
};

// One member's part in what proto/shm/job_segment.h calls direct reading: offers its own memory,
// finds out whether everybody can read everybody, and reads.
//
// Thread safety: any thread may call anything. Nothing blocks, but for a short lock while members
//   are tried.
// Ownership: borrows the segment's memory.
class DirectReads {
 public:
  // Publishes this process's token and tries the members that have published theirs.
  DirectReads(const JobSegmentView& segment, std::uint32_t self, DirectReading reading);
  ~DirectReads() { Withdraw(); }
  DirectReads(const DirectReads&) = delete;
  DirectReads& operator=(const DirectReads&) = delete;

  // True once all members have said that they can read all others. Before that each call tries who
  // has come since.
  bool Allowed() noexcept {
    const Verdict verdict = verdict_.load(std::memory_order_acquire);
    return verdict == Verdict::kOpen ? Settle() : verdict == Verdict::kYes;
  }

  // False for memory of this process that the kernel reads for nobody, such as a device's. Looks at
  // its ends.
  static bool IsReadable(const void* address, std::size_t bytes) noexcept;

  static constexpr int kOk = 0;
  static constexpr int kWithdrawn = -1;
  // Reads `to.size()` bytes at `address` of `member`, another one. kOk; kWithdrawn if the member
  // has given its operations up; else an errno: ESRCH for one that has died, EPERM if not all
  // members have been tried. `to` may be partly written then.
  int Read(std::uint32_t member, std::uint64_t address, std::span<std::byte> to) noexcept;

  // From now on, whatever others read here comes to nothing. What was read before is right.
  // Idempotent.
  void Withdraw() noexcept;

 private:
  enum class Verdict : std::uint8_t { kOpen, kYes, kNo };
  struct Peer {
    bool tried = false;
    pid_t pid = 0;
    std::uint64_t token_address = 0;
    std::uint64_t token = 0;
  };

  bool Settle() noexcept;
  // False if somebody has not come so far.
  bool TryOthers() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Reach ReachOf(std::uint32_t member) const noexcept;
  void Publish(Reach reach) noexcept;

  const JobSegmentView segment_;
  const std::uint32_t self_;
  std::atomic<Verdict> verdict_{Verdict::kOpen};
  // Read by the other processes, wherever they find it.
  const std::unique_ptr<std::atomic<std::uint64_t>> token_;
  Mutex mutex_;
  // By member. Written under mutex_ until this member's `reach` says that it can read all; then
  // immutable.
  std::vector<Peer> peers_;
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_TENSORS_DIRECT_READS_H_
