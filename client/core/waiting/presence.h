// Who is in a call right now.
#ifndef RINGD_CLIENT_CORE_WAITING_PRESENCE_H_
#define RINGD_CLIENT_CORE_WAITING_PRESENCE_H_

#include <atomic>
#include <cstdint>

namespace ringd::client {

// Counts the calling thread while it lives.
class Presence {
 public:
  explicit Presence(std::atomic<std::uint32_t>& count) noexcept : count_(count) { ++count_; }
  ~Presence() { --count_; }
  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;

 private:
  std::atomic<std::uint32_t>& count_;
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_WAITING_PRESENCE_H_
