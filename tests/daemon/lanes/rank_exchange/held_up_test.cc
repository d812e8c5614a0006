// A rank holds the kernel's lock of a socket that it shares with its ringd.
#include <sys/socket.h>
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
#include "tests/absent_page.h"
#include "tests/daemon/lanes/rank_exchange/attached_rank.h"
#include "tests/proto/base/tcp_pair.h"

namespace ringd {
namespace {

constexpr std::uint32_t kLimit = 4096;
constexpr std::chrono::seconds kLong{20};

TEST_CASE(
    "RankExchangeWatch: a rank that holds up the socket holds up neither engine nor other jobs") {
  AbsentPage page;
  if (!page.available()) {
    WARN("skipped: userfaultfd is for root here");
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
