// A node that has the job's key, and writes to its control stream what no ringd would.
#ifndef RINGD_TESTS_DAEMON_PEERS_RAW_NODE_H_
#define RINGD_TESTS_DAEMON_PEERS_RAW_NODE_H_

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <span>
#include <string>
#include <utility>

#include "daemon/door/dial.h"
#include "proto/base/clock.h"
#include "proto/peers/peer_frame.h"
#include "proto/rpc/peer.pb.h"

namespace ringd {

class RawNode {
 public:
  // Through the door already.
  explicit RawNode(DoorConnection connection) : socket_(std::move(connection.socket)) {}

  // False if the other side has hung up.
  bool Say(const std::string& bytes) {
    return ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  // As much as the connection takes.
  std::size_t SayAllItTakes(const std::string& bytes) {
    std::size_t said = 0;
    for (;;) {
      const ssize_t sent =
          ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent <= 0) return said;
      said += static_cast<std::size_t>(sent);
    }
  }
  // Reads until the other side hangs up; false if it does not within `patience`.
  bool AwaitHangUp(Clock::duration patience) {
    const Clock::time_point deadline = Clock::now() + patience;
    std::array<char, 4096> bytes;
    while (Clock::now() < deadline) {
      pollfd readable{socket_.get(), POLLIN, 0};
      if (::poll(&readable, 1, 10) != 1) continue;
      const ssize_t got = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN)) return true;
      if (got > 0) heard_.append(bytes.data(), static_cast<std::size_t>(got));
    }
    return false;
  }
  const std::string& heard() const noexcept { return heard_; }

  static std::string Message(int number) {
    v1::NodeMessage message;
    message.mutable_failure()->set_code(number);
    const std::string bytes = message.SerializeAsString();
    return EncodePeerFrame(PeerFrameKind::kMessage, std::as_bytes(std::span(bytes)));
  }

 private:
  UniqueFd socket_;
  std::string heard_;
};

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_PEERS_RAW_NODE_H_
