// A node that keeps to no rules but those of the handshake: what hostile and broken ones send.
#ifndef RINGD_TESTS_BACKENDS_TCP_RAW_PEER_H_
#define RINGD_TESTS_BACKENDS_TCP_RAW_PEER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/tcp/tcp_frame.h"
#include "proto/base/unique_fd.h"

namespace ringd {

// One connection to a LoopbackSockets, opened as node `scope.self` of a job for its node
// `scope.peer`.
//
// Thread safety: one thread. Nothing blocks but for a second at most, which is an error.
class RawPeer {
 public:
  // The other side must Take() until Welcomed(). `receive_buffer`: in bytes; 0: the kernel's.
  RawPeer(const std::string& address, const FrameScope& scope, std::uint32_t stream,
          int receive_buffer = 0);

  bool Welcomed();

  // A frame as a correct node would begin it.
  FrameHead Head(MessageType type, std::uint32_t index = 0, std::uint32_t payload_bytes = 0) const;
  void Send(const FrameHead& head, std::span<const std::byte> payload = {}) const;
  // What was sent is at the other side, read or not. Waits for that, a second at most.
  bool AllHasArrived() const;
  void SayGoodbye() const { Send(GoodbyeOf(scope_)); }

  // What has come and was not read yet; does not wait.
  std::vector<std::byte> ReadAll();
  // True: nothing more can come.
  bool HasEnded();
  void Hang() { socket_.Reset(); }

 private:
  const FrameScope scope_;
  UniqueFd socket_;
  bool welcomed_ = false;
  bool ended_ = false;
};

// The frames in what a connection brought; the last one may be cut short. Nothing if it is no
// frame.
struct RawFrame {
  FrameHead head;
  std::vector<std::byte> payload;
};
std::optional<std::vector<RawFrame>> FramesOf(std::span<const std::byte> bytes);

}  // namespace ringd

#endif  // RINGD_TESTS_BACKENDS_TCP_RAW_PEER_H_
