// Notices forks of a process that has a context open.
#ifndef RINGD_CLIENT_CORE_ATTACH_FORK_GUARD_H_
#define RINGD_CLIENT_CORE_ATTACH_FORK_GUARD_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ringd::client {

// A forked child shares rings, arena and descriptors with its parent and would corrupt their state,
// so it must not use the context. Telling costs one load: a fork handler counts, since getpid is a
// system call.
//
// Nor can the child open a context of its own: it has gRPC's locks as they stood at the fork, but
// not the threads that would release them, and a call would hang now and then.
//
// In the child the handler also closes the child's copy of the lifeline: otherwise ringd would see
// the parent's death only when the child has gone, too.
//
// Thread safety: any thread may call anything.
// Lifetime: longer than every gRPC object of its context.
class ForkGuard {
 public:
  // `lifeline` is not owned.
  explicit ForkGuard(int lifeline);
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

  // Call before the lifeline is closed.
  void ForgetLifeline() noexcept;

  // True in a child forked since this object was made.
  bool InChild() const noexcept;

  // True if this process was forked while its parent had a context.
  static bool ForkedWithContext() noexcept;

 private:
  const std::uint32_t generation_;
  std::size_t entry_;
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_ATTACH_FORK_GUARD_H_
