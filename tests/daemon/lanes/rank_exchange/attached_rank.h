// A rank as ringd sees it, and the rank's own end: its lifeline, and what it was handed there.
#ifndef RINGD_TESTS_DAEMON_LANES_RANK_EXCHANGE_ATTACHED_RANK_H_
#define RINGD_TESTS_DAEMON_LANES_RANK_EXCHANGE_ATTACHED_RANK_H_

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "daemon/attach/session_factory.h"
#include "daemon/sessions/session.h"
#include "proto/attach/handshake.h"
#include "proto/base/clock.h"
#include "proto/base/memory_mapping.h"
#include "proto/base/unix_socket.h"
#include "proto/rank_exchange/rank_exchange.h"

namespace ringd {

struct AttachedRank {
  static constexpr std::uint64_t kArenaBytes = 1 << 20;

  // `process`: a child's id; else nobody can say what the rank's process does.
  explicit AttachedRank(pid_t process = 0) {
    auto ends = UnixSocketPair();
    REQUIRE(ends.ok());
    own_end = std::move(ends->first);
    PeerCredentials self;
    self.pid = process > 0 ? process : 1;
    auto made = MakeSession(SessionId(1), {kArenaBytes, 16}, self, ends->second.get());
    REQUIRE(made.ok());
    made->resources->lifeline = std::move(ends->second);
    REQUIRE(made->resources->MapMemory().ok());
    if (process > 0) {
      made->resources->pidfd.Reset(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
    }
    session = std::make_shared<Session>(std::move(made->resources));
  }

  // True if there is a notice that was not read.
  bool WasSentAnything() const {
    char byte = 0;
    return ::recv(own_end.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
  }

  // The next notice, which must be of this kind, and its descriptor.
  template <typename Notice>
  Notice Receive(NoticeKind kind, UniqueFd& fd) {
    struct {
      NoticeHeader header;
      Notice notice;
    } frame{};
    auto fds = ReceiveWithFds(own_end.get(), std::as_writable_bytes(std::span(&frame, 1)),
                              Clock::now() + std::chrono::seconds(10));
    REQUIRE(fds.ok());
    REQUIRE(fds->size() == 1);
    CHECK(frame.header.kind == static_cast<std::uint32_t>(kind));
    CHECK(frame.header.text_length == sizeof(Notice));
    fd = std::move(fds->front());
    return frame.notice;
  }

  // Takes over what it was sent, as the client does. Its place among the node's members.
  std::uint32_t Attach(std::uint32_t node_count, std::uint32_t connection_count) {
    UniqueFd fd;
    const auto notice = Receive<RankExchangeNotice>(NoticeKind::kRankExchange, fd);
    auto mapped = MemoryMapping::MapSealed(fd.get(), notice.segment_bytes);
    REQUIRE(mapped.ok());
    segment = *std::move(mapped);
    auto viewed = ViewRankExchangeSegment(segment.data(), segment.size());
    REQUIRE(viewed.ok());
    view = *viewed;
    member = notice.member;
    std::vector<UniqueFd> connections(node_count);
    for (std::uint32_t i = 0; i < connection_count; ++i) {
      UniqueFd connection;
      const auto whose =
          Receive<RankExchangeConnectionNotice>(NoticeKind::kRankExchangeConnection, connection);
      REQUIRE(whose.node < node_count);
      CHECK_FALSE(connections[whose.node].valid());
      connections[whose.node] = std::move(connection);
    }
    auto made = RankExchange::Create(view, member, std::move(connections));
    REQUIRE(made.ok());
    exchange = *std::move(made);
    return member;
  }

  // Brings a float, 1, of the tensor registered under this number.
  RankExchangeOutcome Contribute(const RankExchangeKey& key, std::uint32_t registration,
                                 std::uint32_t& cell) {
    static constexpr float kOne = 1;
    RankExchangeContribution contribution;
    contribution.key = key;
    contribution.data_type = DataType::kFloat32;
    contribution.source = &kOne;
    contribution.element_count = 1;
    RankExchangeMember& words = view.Member(member);
    words.since_ns = MonotonicNanos();
    words.registration = registration + 1;
    return exchange->Contribute(contribution, cell);
  }

  UniqueFd own_end;
  std::shared_ptr<Session> session;
  MemoryMapping segment;
  RankExchangeView view;
  std::uint32_t member = 0;
  std::unique_ptr<RankExchange> exchange;
};

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_LANES_RANK_EXCHANGE_ATTACHED_RANK_H_
