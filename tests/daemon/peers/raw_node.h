// A node that has the job's key, and speaks HTTP/2 for itself: it makes calls that no gRPC would
// make.
#ifndef RINGD_TESTS_DAEMON_PEERS_RAW_NODE_H_
#define RINGD_TESTS_DAEMON_PEERS_RAW_NODE_H_

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "daemon/door/dial.h"
#include "proto/door/door_key.h"
#include "proto/door/hmac.h"

namespace ringd {

class RawNode {
 public:
  // Through the door already.
  explicit RawNode(DoorConnection connection)
      : socket_(std::move(connection.socket)),
        token_(AsText(ControlCallToken(connection.session_key))) {
    Say("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(kSettings, 0, 0, ""));
  }

  // Begins the call that belongs to the connection, and does not end it.
  void BeginStream() {
    stream_ += 2;
    Say(Frame(kHeaders, kEndHeaders, stream_,
              CallHeaders() + Header("ringd-call-bin", absl::Base64Escape(token_))));
  }
  void ResetStream() {
    Say(Frame(kReset, 0, stream_, std::string("\0\0\0\x08", 4)));  // CANCEL
  }
  // Makes a call that is refused; false if there is no answer, since the connection has ended.
  bool MakeRefusedCall() {
    stream_ += 2;
    Say(Frame(kHeaders, kEndHeaders | kEndStream, stream_, CallHeaders()));
    return AwaitEndOfStream();
  }

 private:
  enum Type : std::uint8_t { kHeaders = 1, kReset = 3, kSettings = 4 };
  static constexpr std::uint8_t kEndStream = 1;
  static constexpr std::uint8_t kEndHeaders = 4;
  static constexpr std::size_t kFrameHeaderBytes = 9;

  static std::string Frame(Type type, std::uint8_t flags, std::uint32_t stream,
                           const std::string& payload) {
    std::string frame;
    const auto append = [&](std::uint32_t value, int bytes) {
      for (int i = bytes - 1; i >= 0; --i) frame += static_cast<char>(value >> (8 * i));
    };
    append(static_cast<std::uint32_t>(payload.size()), 3);
    append(type, 1);
    append(flags, 1);
    append(stream, 4);
    return frame + payload;
  }
  // HPACK: literal, not indexed, not compressed, below 127 bytes.
  static std::string Header(const std::string& name, const std::string& value) {
    std::string header(1, '\0');
    header += static_cast<char>(name.size());
    header += name;
    header += static_cast<char>(value.size());
    return header + value;
  }
  static std::string CallHeaders() {
    return Header(":method", "POST") + Header(":scheme", "http") +
           Header(":path", "/ringd.v1.Peer/Job") + Header(":authority", "ringd") +
           Header("te", "trailers") + Header("content-type", "application/grpc");
  }

  void Say(const std::string& bytes) {
    // The other side may have hung up.
    static_cast<void>(!::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }
  bool AwaitEndOfStream() {
    for (;;) {
      while (heard_.size() >= kFrameHeaderBytes) {
        const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(heard_[i]); };
        const std::size_t size = byte(0) << 16 | byte(1) << 8 | byte(2);
        if (heard_.size() < kFrameHeaderBytes + size) break;
        const std::uint32_t stream = byte(5) << 24 | byte(6) << 16 | byte(7) << 8 | byte(8);
        const bool is_end =
            byte(3) == kReset || (byte(3) == kHeaders && (byte(4) & kEndStream) != 0);
        heard_.erase(0, kFrameHeaderBytes + size);
        if (is_end && stream == stream_) return true;
      }
      pollfd readable{socket_.get(), POLLIN, 0};
      std::array<char, 4096> bytes;
      if (::poll(&readable, 1, 20'000) != 1) return false;
      const ssize_t got = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (got <= 0) return false;
      heard_.append(bytes.data(), static_cast<std::size_t>(got));
    }
  }

  UniqueFd socket_;
  const std::string token_;
  std::uint32_t stream_ = 0xFFFFFFFF;  // the last one; the first is 1
  std::string heard_;                  // not looked at yet
};

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_PEERS_RAW_NODE_H_
