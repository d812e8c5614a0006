// Threads that serve calls, beside those that carry gradients.
#ifndef RINGD_PROTO_BASE_THREAD_PRIORITY_H_
#define RINGD_PROTO_BASE_THREAD_PRIORITY_H_

#include <unistd.h>

namespace ringd {

// How much nicer they are: with 5, about a third of the processor time of a thread that wants the
// same processor (sched(7): a factor of 1.25 for each step).
inline constexpr int kServingNice = 5;

// The calling thread, and those that it starts from now on, give way to threads that carry
// gradients. Where the kernel refuses, nothing changes. Not to be undone without privileges.
inline void ServeBesideEngine() noexcept {
  [[maybe_unused]] const int value = ::nice(kServingNice);
}

}  // namespace ringd

#endif  // RINGD_PROTO_BASE_THREAD_PRIORITY_H_
