// A rank holds the kernel's lock of a socket that it shares with its ringd.
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/lanes/rank_exchange/rank_exchange_watch.h"
#include "daemon/sessions/isolated_executor.h"
#include "tests/daemon/lanes/rank_exchange/attached_rank.h"
#include "tests/proto/base/tcp_pair.h"

namespace ringd {
namespace {

constexpr std::uint32_t kLimit = 4096;
constexpr std::chrono::seconds kLong{20};

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

  // False where the kernel gives it to hub alone, and this is not hub.
  bool available() const noexcept { return available_; }
  const void* data() const noexcept { return page_; }
  std::size_t bytes() const noexcept { return bytes_; }
  // Waits until somebody reads the page.
  bool IsAwaited() const {
    uffd_msg message{};
    const auto end = Clock::now() + kLong;
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

TEST_CASE(
    "RankExchangeWatch: a rank that holds up the socket holds up neither engine nor other jobs") {
  AbsentPage page;
  if (!page.available()) {
    WARN("skipped: userfaultfd is for hub here");
    return;
  }
  IsolatedExecutor isolated;
  AttachedRank rank;
  const std::vector<std::shared_ptr<Session>> members{rank.session};
  auto [own_end, other_end] = testing::TcpPair();
  const UniqueFd ranks_own(::dup(own_end.get()));
  std::vector<UniqueFd> connections(2);
  connections[1] = std::move(own_end);
  auto watch = RankExchangeWatch::Create({1, 2, 0, kLimit, kLimit}, std::move(connections), members,
                                         &isolated);
  REQUIRE(watch.ok());

  // So that ringd has a reason to read.
  REQUIRE(::send(other_end.get(), "?", 1, MSG_NOSIGNAL) == 1);
  std::thread sender([&] { ::send(ranks_own.get(), page.data(), page.bytes(), MSG_NOSIGNAL); });
  const bool held = page.IsAwaited();
  auto looks = std::async(std::launch::async, [&] {
    Clock::time_point now = Clock::now();
    for (int i = 0; i < 3; ++i) (*watch)->Look(now += RankExchangeWatch::kLookInterval);
    // Also its end.
    watch->reset();
  });
  const bool engine_goes_on = looks.wait_for(kLong) == std::future_status::ready;
  bool others_go_on = false;
  const auto end = Clock::now() + kLong;
  while (!others_go_on && Clock::now() < end) {
    auto done = std::make_shared<std::promise<void>>();
    isolated.Run([done] { done->set_value(); });
    others_go_on =
        done->get_future().wait_for(std::chrono::milliseconds(20)) == std::future_status::ready;
  }
  // Nothing may fail before this, or the threads would stay.
  page.Give();
  sender.join();
  looks.wait();
  CHECK(held);
  CHECK(engine_goes_on);
  CHECK(others_go_on);
}

}  // namespace
}  // namespace ringd
