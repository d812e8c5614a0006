#include "tests/backends/tcp/raw_peer.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "proto/base/clock.h"
#include "tests/backends/tcp/loopback_sockets.h"

namespace ringd {

RawPeer::RawPeer(const std::string& address, const FrameScope& scope, std::uint32_t stream,
                 int receive_buffer)
    : scope_(scope), socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  if (receive_buffer > 0) {
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
  }
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int port = std::atoi(address.substr(address.rfind(':') + 1).c_str());
  name.sin_port = htons(static_cast<std::uint16_t>(port));
  REQUIRE(::connect(socket_.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)) == 0);
  const LoopbackSockets::Hello hello{scope.wire_id, scope.self, scope.peer, stream, 0};
  REQUIRE(::send(socket_.get(), &hello, sizeof(hello), MSG_NOSIGNAL) == sizeof(hello));
}

bool RawPeer::Welcomed() {
  char verdict = 0;
  if (!welcomed_ && ::recv(socket_.get(), &verdict, 1, MSG_DONTWAIT) == 1) {
    REQUIRE(verdict == LoopbackSockets::kWelcome);
    welcomed_ = true;
  }
  return welcomed_;
}

FrameHead RawPeer::Head(MessageType type, std::uint32_t index, std::uint32_t payload_bytes) const {
  FrameHead head = GoodbyeOf(scope_);
  head.kind = FrameKind::kMessage;
  head.message.type = type;
  head.message.index = index;
  head.payload_bytes = payload_bytes;
  return head;
}

void RawPeer::Send(const FrameHead& head, std::span<const std::byte> payload) const {
  std::vector<std::byte> bytes(sizeof(head) + payload.size());
  std::memcpy(bytes.data(), &head, sizeof(head));
  if (!payload.empty()) std::memcpy(&bytes[sizeof(head)], payload.data(), payload.size());
  const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  REQUIRE(sent == static_cast<ssize_t>(bytes.size()));
}

bool RawPeer::AllHasArrived() const {
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(1);
  int unacknowledged = 1;
  while (unacknowledged > 0 && Clock::now() < deadline) {
    REQUIRE(::ioctl(socket_.get(), SIOCOUTQ, &unacknowledged) == 0);
    if (unacknowledged > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return unacknowledged == 0;
}

std::vector<std::byte> RawPeer::ReadAll() {
  std::vector<std::byte> all;
  std::array<std::byte, 65536> part;
  for (;;) {
    const ssize_t got = ::recv(socket_.get(), part.data(), part.size(), MSG_DONTWAIT);
    if (got <= 0) {
      if (got == 0 || errno != EAGAIN) ended_ = true;
      return all;
    }
    all.insert(all.end(), part.begin(), part.begin() + got);
  }
}

bool RawPeer::HasEnded() {
  ReadAll();
  return ended_;
}

std::optional<std::vector<RawFrame>> FramesOf(std::span<const std::byte> bytes) {
  std::vector<RawFrame> frames;
  while (bytes.size() >= sizeof(FrameHead)) {
    RawFrame frame;
    std::memcpy(&frame.head, bytes.data(), sizeof(FrameHead));
    if (frame.head.message.magic != kMessageMagic) return std::nullopt;
    bytes = bytes.subspan(sizeof(FrameHead));
    const std::size_t length = std::min<std::size_t>(frame.head.payload_bytes, bytes.size());
    frame.payload.assign(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length));
    bytes = bytes.subspan(length);
    frames.push_back(std::move(frame));
  }
  return frames;
}

}  // namespace ringd
