// Puts the frames of a control stream together from the bytes in which they come.
#ifndef RINGD_DAEMON_PEERS_PEER_FRAME_READER_H_
#define RINGD_DAEMON_PEERS_PEER_FRAME_READER_H_

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "daemon/peers/peer_budget.h"
#include "proto/peers/peer_frame.h"

namespace ringd {

// What has come of a frame is kept as it comes: a header that promises much costs nothing yet.
//
// Thread safety: one thread at a time.
// Ownership: counts what it keeps against the budget, until it goes.
class PeerFrameReader {
 public:
  explicit PeerFrameReader(std::shared_ptr<PeerBudget> budget) : budget_(std::move(budget)) {}
  ~PeerFrameReader() { budget_->Give(counted_); }
  PeerFrameReader(const PeerFrameReader&) = delete;
  PeerFrameReader& operator=(const PeerFrameReader&) = delete;

  // Calls take(kind, payload) for each frame that ends with these bytes, in order; the payload is
  // valid during the call. If `take` returns false, the rest is dropped.
  //   kInvalidArgument: these are no frames. kResourceExhausted: the budget is used up. It must not
  //   be called again after either.
  template <typename Take>
  absl::Status Feed(std::span<const std::byte> bytes, Take take);

 private:
  // More memory is given back when its frame has been taken.
  static constexpr std::size_t kKeptBytes = std::size_t{64} << 10;

  // Nothing: the header is wrong. Requirement: there is a whole one.
  static std::optional<PeerFrameHeader> HeaderOf(std::span<const std::byte> frame) noexcept {
    return DecodePeerFrameHeader(frame.first<kPeerFrameHeaderBytes>());
  }
  static absl::Status NoFrame() {
    return absl::InvalidArgumentError("what it sent is no frame of a control stream");
  }
  std::span<const std::byte> partial() const noexcept { return std::as_bytes(std::span(partial_)); }
  absl::Status Keep(std::span<const std::byte> bytes);
  void Forget() noexcept;

  const std::shared_ptr<PeerBudget> budget_;
  std::string partial_;  // a frame that has not ended
  std::size_t counted_ = 0;
};

template <typename Take>
absl::Status PeerFrameReader::Feed(std::span<const std::byte> bytes, Take take) {
  while (!bytes.empty()) {
    if (partial_.empty() && bytes.size() >= kPeerFrameHeaderBytes) {
      const auto header = HeaderOf(bytes);
      if (!header.has_value()) return NoFrame();
      const std::size_t frame_bytes = kPeerFrameHeaderBytes + header->payload_bytes;
      if (bytes.size() >= frame_bytes) {
        if (!take(header->kind, bytes.subspan(kPeerFrameHeaderBytes, header->payload_bytes))) {
          return absl::OkStatus();
        }
        bytes = bytes.subspan(frame_bytes);
        continue;
      }
    }
    std::size_t wanted = kPeerFrameHeaderBytes;
    if (partial_.size() >= kPeerFrameHeaderBytes) wanted += HeaderOf(partial())->payload_bytes;
    const std::size_t count = std::min(wanted - partial_.size(), bytes.size());
    if (absl::Status status = Keep(bytes.first(count)); !status.ok()) return status;
    bytes = bytes.subspan(count);
    if (partial_.size() < kPeerFrameHeaderBytes) return absl::OkStatus();
    const auto header = HeaderOf(partial());
    if (!header.has_value()) return NoFrame();
    if (partial_.size() < kPeerFrameHeaderBytes + header->payload_bytes) continue;
    const bool goes_on = take(header->kind, partial().subspan(kPeerFrameHeaderBytes));
    Forget();
    if (!goes_on) return absl::OkStatus();
  }
  return absl::OkStatus();
}

inline absl::Status PeerFrameReader::Keep(std::span<const std::byte> bytes) {
  const std::size_t needed = partial_.size() + bytes.size();
  if (needed > counted_) {
    const std::size_t counted = std::max(needed, 2 * counted_);
    if (!budget_->Take(counted - counted_)) {
      return absl::ResourceExhaustedError(
          "the nodes of this user's jobs have sent more unfinished messages than ringd keeps");
    }
    counted_ = counted;
    partial_.reserve(counted);
  }
  partial_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return absl::OkStatus();
}

inline void PeerFrameReader::Forget() noexcept {
  partial_.clear();
  if (counted_ <= kKeptBytes) return;
  std::string().swap(partial_);
  budget_->Give(std::exchange(counted_, 0));
}

}  // namespace ringd

#endif  // RINGD_DAEMON_PEERS_PEER_FRAME_READER_H_
