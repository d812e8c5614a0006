// Jobs on lines of a remote, over sockets whose other ends are the test's.
#ifndef RINGD_TESTS_BACKENDS_TCP_LINE_JOB_H_
#define RINGD_TESTS_BACKENDS_TCP_LINE_JOB_H_

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "backends/tcp/tcp_line.h"
#include "backends/tcp/tcp_remote.h"
#include "proto/base/clock.h"
#include "tests/backends/tcp_pair.h"

namespace ringd {

// What lines need of a transport.
struct Ground {
  explicit Ground(LineTurn* turn = nullptr) : remote(turn) {}

  void Turn() {
    poller.Poll();
    poller.ForEachReady([](TcpConnection& ready) { ready.HandleReady(); });
    remote.Advance();
  }
  template <typename Done>
  bool RunUntil(Done done) {
    const Clock::time_point deadline = Clock::now() + std::chrono::seconds(20);
    while (!done()) {
      if (Clock::now() > deadline) return false;
      Turn();
    }
    return true;
  }

  TcpPoller poller;
  SendPool<TcpSend> sends;
  TcpLine::Means means{poller, sends, {}};
  TcpRemote remote;
};

// A job that always has bulk to send, and takes what comes.
class Job final : public SendObserver, private TcpLine::User {
 public:
  Job(Ground& ground, const FrameScope& scope, const LineShare& share = {})
      : scope_(scope),
        line(scope, share, ground.remote, ground.means, *static_cast<TcpLine::User*>(this)) {}

  bool Send(SendPriority priority = SendPriority::kBulk) {
    MessageHeader header;
    header.wire_id = scope_.wire_id;
    header.source = scope_.self;
    header.destination = scope_.peer;
    const bool done = line.Send(header, payload_, priority, this);
    if (!done) ++outstanding;
    sent_bytes += done ? payload_.size() : 0;
    return done;
  }
  // As an operation does.
  void Refill() {
    for (int i = 0; i < 4 && outstanding < 4; ++i) Send();
  }

  void OnSent(NodeIndex) noexcept override {
    --outstanding;
    sent_bytes += payload_.size();
  }
  std::uint64_t order() const noexcept override { return 0; }

  int outstanding = 0;
  std::uint64_t sent_bytes = 0;  // sent or given up
  int received = 0;
  bool failed = false;

 private:
  void OnMessage(const MessageHeader&, std::span<const std::byte>) noexcept override { ++received; }
  void OnFailure(const TcpLine&) noexcept override { failed = true; }

  const FrameScope scope_;
  const std::vector<std::byte> payload_ = std::vector<std::byte>(64 * 1024, std::byte{1});

 public:
  TcpLine line;
};

// The other end of a job's connections, one for urgent messages and one for bulk.
class FarEnd {
 public:
  explicit FarEnd(TcpLine& line) {
    for (std::uint32_t stream = 0; stream < 2; ++stream) {
      TcpPair& pair = pairs_[stream];
      // So that little is under way: who goes next shows at once.
      constexpr int kBytes = 32 * 1024;
      ::setsockopt(pair.other.get(), SOL_SOCKET, SO_RCVBUF, &kBytes, sizeof(kBytes));
      line.Adopt(std::move(pair.one), stream, true);
    }
  }

  // Reads up to `most` bytes of bulk.
  std::size_t Read(std::size_t most) {
    std::vector<std::byte> part(most);
    const ssize_t got = ::recv(pairs_[1].other.get(), part.data(), part.size(), MSG_DONTWAIT);
    return got > 0 ? static_cast<std::size_t>(got) : 0;
  }
  void Hang() { pairs_[1].other.Reset(); }

 private:
  TcpPair pairs_[2];
};

}  // namespace ringd

#endif  // RINGD_TESTS_BACKENDS_TCP_LINE_JOB_H_
