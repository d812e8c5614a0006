// Tells the processor that this thread spins.
#ifndef RINGD_CLIENT_CORE_WAITING_RELAX_H_
#define RINGD_CLIENT_CORE_WAITING_RELAX_H_

namespace ringd::client {

inline void Relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_WAITING_RELAX_H_
