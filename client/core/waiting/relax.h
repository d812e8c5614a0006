// How a thread waits for one that is about to be done.
#ifndef RINGD_CLIENT_CORE_WAITING_RELAX_H_
#define RINGD_CLIENT_CORE_WAITING_RELAX_H_

#include <chrono>
#include <thread>

namespace ringd::client {

// Tells the processor that this thread spins.
inline void Relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Pauses of a thread that waits for another one's step: yields, and after some of them sleeps. A
// thread of real-time priority may keep the other one from going on.
class GivingWay {
 public:
  void Pause() {
    if (yields_ < kMostYields) {
      ++yields_;
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kSleep);
    }
  }

 private:
  static constexpr int kMostYields = 50;
  static constexpr std::chrono::microseconds kSleep{50};

  int yields_ = 0;
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_WAITING_RELAX_H_
