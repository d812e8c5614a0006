// The last words for an engine that has ended, on its control connections.
#ifndef RINGD_DAEMON_PEERS_LAST_BYTES_H_
#define RINGD_DAEMON_PEERS_LAST_BYTES_H_

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "proto/peers/peer_frame.h"

namespace ringd {

// An engine that crashes may have sent a part of a frame. Its supervisor, which knows how it ended
// and not what it has sent, appends a kEnd with kDataLoss, which nobody else uses, and closes the
// connection. So this is looked for at the end of what has come, wherever frames begin.
//
// Thread safety: none.
class LastBytes {
 public:
  void Add(std::span<const std::byte> bytes) {
    const auto kept = bytes.last(std::min(bytes.size(), kMost));
    const std::size_t before = std::min(bytes_.size(), kMost - kept.size());
    bytes_.erase(0, bytes_.size() - before);
    bytes_.append(reinterpret_cast<const char*>(kept.data()), kept.size());
  }

  // What the supervisor has said; nothing: it has said nothing.
  std::optional<absl::Status> Obituary() const {
    const std::span<const std::byte> bytes = std::as_bytes(std::span(bytes_));
    for (std::size_t begin = 0; begin + kPeerFrameHeaderBytes <= bytes.size(); ++begin) {
      const auto frame = bytes.subspan(begin);
      const auto header = DecodePeerFrameHeader(frame.first<kPeerFrameHeaderBytes>());
      if (!header.has_value() || header->kind != PeerFrameKind::kEnd ||
          header->payload_bytes != frame.size() - kPeerFrameHeaderBytes) {
        continue;
      }
      absl::Status why = DecodePeerEnd(frame.subspan(kPeerFrameHeaderBytes));
      if (absl::IsDataLoss(why)) return why;
    }
    return std::nullopt;
  }

 private:
  // A kEnd has its text and a few more bytes.
  static constexpr std::size_t kMost = kPeerFrameHeaderBytes + kMaxPeerReasonBytes + 64;

  std::string bytes_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_PEERS_LAST_BYTES_H_
