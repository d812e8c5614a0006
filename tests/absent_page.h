// Memory that keeps those waiting who read it.
#ifndef RINGD_TESTS_ABSENT_PAGE_H_
#define RINGD_TESTS_ABSENT_PAGE_H_

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>

#include "proto/base/clock.h"
#include "proto/base/unique_fd.h"

namespace ringd {

// A page that does not come until Give(): whoever reads it waits, the kernel included, as with a
// file system of the user's own (FUSE).
class AbsentPage {
 public:
  AbsentPage() {
    bytes_ = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    page_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    faults_ = UniqueFd(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK)));
    uffdio_api api{};
    api.api = UFFD_API;
    uffdio_register range{};
    range.range = {reinterpret_cast<std::uintptr_t>(page_), bytes_};
    range.mode = UFFDIO_REGISTER_MODE_MISSING;
    available_ = page_ != MAP_FAILED && faults_.valid() &&
                 ::ioctl(faults_.get(), UFFDIO_API, &api) == 0 &&
                 ::ioctl(faults_.get(), UFFDIO_REGISTER, &range) == 0;
  }
  ~AbsentPage() {
    faults_.Reset();
    ::munmap(page_, bytes_);
  }
  AbsentPage(const AbsentPage&) = delete;
  AbsentPage& operator=(const AbsentPage&) = delete;

  // False where the kernel gives it to root alone, and this is not root.
  bool available() const noexcept { return available_; }
  const void* data() const noexcept { return page_; }
  std::size_t bytes() const noexcept { return bytes_; }
  // Waits until somebody reads the page.
  bool IsAwaited() const {
    uffd_msg message{};
    const auto end = Clock::now() + std::chrono::seconds(20);
    while (::read(faults_.get(), &message, sizeof(message)) != sizeof(message)) {
      if (Clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }
  void Give() {
    uffdio_zeropage zero{};
    zero.range = {reinterpret_cast<std::uintptr_t>(page_), bytes_};
    REQUIRE(::ioctl(faults_.get(), UFFDIO_ZEROPAGE, &zero) == 0);
  }

 private:
  std::size_t bytes_ = 0;
  void* page_ = MAP_FAILED;
  UniqueFd faults_;
  bool available_ = false;
};

}  // namespace ringd

#endif  // RINGD_TESTS_ABSENT_PAGE_H_
