// Sleeping on, and waking from, a word that several processes share.
#ifndef RINGD_PROTO_BASE_FUTEX_H_
#define RINGD_PROTO_BASE_FUTEX_H_

#include <atomic>
#include <chrono>
#include <cstdint>

namespace ringd {

// Sleeps while `word` holds `expected`, at most `timeout`. May return early (a wake-up, a signal, a
// changed word): the caller looks again. See futex(2), FUTEX_WAIT; not FUTEX_PRIVATE.
void FutexWait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
               std::chrono::nanoseconds timeout) noexcept;

// Wakes every sleeper of `word`. A system call.
void FutexWakeAll(std::atomic<std::uint32_t>& word) noexcept;

}  // namespace ringd

#endif  // RINGD_PROTO_BASE_FUTEX_H_
