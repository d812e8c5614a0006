// Owns one file descriptor.
#ifndef RINGD_PROTO_BASE_UNIQUE_FD_H_
#define RINGD_PROTO_BASE_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace ringd {

// Thread safety: like an int; one thread at a time.
// Ownership: closes the descriptor when it goes.
class UniqueFd {
 public:
  UniqueFd() noexcept = default;
  explicit UniqueFd(int fd) noexcept : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    Reset(std::exchange(other.fd_, -1));
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { Reset(); }

  int get() const noexcept { return fd_; }
  bool valid() const noexcept { return fd_ >= 0; }

  // Gives the descriptor up without closing it.
  [[nodiscard]] int Release() noexcept { return std::exchange(fd_, -1); }

  // Closes what is owned and owns `fd` instead.
  void Reset(int fd = -1) noexcept {
    const int old = std::exchange(fd_, fd);
    if (old >= 0) ::close(old);
  }

 private:
  int fd_ = -1;
};

}  // namespace ringd

#endif  // RINGD_PROTO_BASE_UNIQUE_FD_H_
