// Notices that this process is a forked child of the one that opened a context.
#ifndef RINGD_CLIENT_CORE_FORK_GUARD_H_
#define RINGD_CLIENT_CORE_FORK_GUARD_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ringd::client {

// A forked child shares rings, arena and descriptors with its parent and would corrupt their state, so
// it must not use the context. Telling costs one load: a fork handler counts, since getpid is a system
// call.
//
// In the child the handler also closes the child's copy of the lifeline: otherwise ringd would see the
// parent's death only when the child has gone, too.
//
// Thread safety: InChild from any thread.
class ForkGuard {
 public:
  // `lifeline` is not owned.
  explicit ForkGuard(int lifeline);
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

  bool InChild() const noexcept;

 private:
  const std::uint32_t generation_;
  std::size_t entry_;
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_FORK_GUARD_H_
