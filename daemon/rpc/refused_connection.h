// HTTP/2 as far as it takes to tell a gRPC client that it is not admitted.
#ifndef RINGD_DAEMON_RPC_REFUSED_CONNECTION_H_
#define RINGD_DAEMON_RPC_REFUSED_CONNECTION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace ringd {

// The server's side of one connection: each call is answered at once with PERMISSION_DENIED and a
// text. What clients say in headers is skipped unread, so no state is kept for it: no header table,
// no streams but the number of the last one.
//
// Thread safety: none. Nothing blocks; there is no socket in here.
// Trust: what comes is input, of strangers. Each connection may say so much, then it is over; it
//   holds less than 64 KiB of answers.
class RefusedConnection {
 public:
  // No client that is refused has use for more.
  static constexpr std::size_t kMostBytes = std::size_t{1} << 20;
  static constexpr std::size_t kMostFrames = 1024;
  static constexpr std::size_t kMostCalls = 64;
  static constexpr std::size_t kMostFrameBytes = std::size_t{16} << 10;  // HTTP/2's default

  // `why`: what callers are told, 512 bytes at most.
  explicit RefusedConnection(absl::string_view why);

  // Takes what has come, in pieces of any size, and adds to output(). False: the connection is to
  // be closed when that has been sent: the client breaks the protocol, has said enough, or goes.
  [[nodiscard]] bool Take(absl::string_view bytes);

  // What is to be sent, and is taken away by whoever sends it.
  std::string& output() noexcept { return output_; }

 private:
  struct FrameHeader {
    std::uint32_t length = 0;
    std::uint8_t type = 0;
    std::uint8_t flags = 0;
    std::uint32_t stream = 0;
  };

  // Of the bytes that are left, those of one step are taken away.
  bool TakePreface(absl::string_view& bytes);
  bool TakeHeader(absl::string_view& bytes);
  bool TakePayload(absl::string_view& bytes);
  // A frame's header has come, or all of it.
  bool BeginFrame();
  bool EndFrame();
  bool EndHeaders();
  void AddFrame(std::uint8_t type, std::uint8_t flags, std::uint32_t stream,
                absl::string_view payload);

  const std::string refusal_;  // a block of headers
  std::string output_;
  std::size_t bytes_ = 0;
  std::size_t frames_ = 0;
  std::size_t calls_ = 0;
  std::size_t preface_ = 0;             // bytes of it that have come
  std::array<char, 9> header_bytes_{};  // of the frame that comes
  std::size_t header_ = 0;              // bytes of them that have come
  FrameHeader frame_;
  std::size_t payload_ = 0;     // bytes of the frame's that have come
  std::array<char, 8> ping_{};  // its first ones
  std::uint32_t last_stream_ = 0;
  std::uint32_t headers_of_ = 0;  // the stream whose headers go on in the next frame; 0: none
};

}  // namespace ringd

#endif  // RINGD_DAEMON_RPC_REFUSED_CONNECTION_H_
