// Messages for communicators that do not exist on this node yet.
#ifndef RINGD_BACKENDS_COLLECTIVES_ORPHAN_MESSAGES_H_
#define RINGD_BACKENDS_COLLECTIVES_ORPHAN_MESSAGES_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "backends/collectives/early_messages.h"
#include "backends/collectives/message.h"

namespace ringd {

// Which communicator's end a message is for.
struct WireKey {
  std::uint64_t wire_id = 0;
  std::int32_t node = 0;

  friend auto operator<=>(const WireKey&, const WireKey&) noexcept = default;

  template <typename H>
  friend H AbslHashValue(H h, const WireKey& key) {
    return H::combine(std::move(h), key.wire_id, key.node);
  }
};

// Keeps them until the communicator is made. As anybody might send anything, the room is bounded:
// when it is used up, the oldest communicator's messages are dropped, and that it can't work any
// more is remembered.
//
// Thread safety: the progress thread only.
// Ownership: of the messages it holds.
// Invariant: the messages take at most kMaxBytes of memory, whatever they carry.
class OrphanMessages {
 public:
  static constexpr std::size_t kMaxBytes = std::size_t{256} << 20;
  // Bounds the communicators, too: some 150 bytes for each of which there is a message.
  static constexpr std::size_t kMaxMessages = 64 * 1024;

  explicit OrphanMessages(EarlyMessagePool& pool) : pool_(pool) {}
  OrphanMessages(const OrphanMessages&) = delete;
  OrphanMessages& operator=(const OrphanMessages&) = delete;
  ~OrphanMessages();

  void Hold(const WireKey& key, const MessageHeader& header, std::span<const std::byte> payload);

  // Moves what has come for `key` to `messages`. False if some of it had to be dropped.
  [[nodiscard]] bool Take(const WireKey& key, EarlyMessageList& messages);

  // The communicator is gone for good: what still comes for it is dropped at once.
  void Retire(const WireKey& key);

  // The memory that the messages take.
  std::size_t taken_bytes() const noexcept { return taken_bytes_; }

 private:
  static constexpr std::size_t kMaxRemembered = 4096;

  // Makes room for a message of `key` that takes `taken_bytes`. False if that cost `key` its own.
  [[nodiscard]] bool MakeRoom(const WireKey& key, std::size_t taken_bytes);
  void Forget(const WireKey& key);
  static void Remember(const WireKey& key, absl::flat_hash_set<WireKey>& set,
                       std::deque<WireKey>& order);

  EarlyMessagePool& pool_;
  absl::flat_hash_map<WireKey, EarlyMessageList> orphans_;
  std::deque<WireKey> oldest_first_;  // of orphans_; may name some that are gone
  std::size_t taken_bytes_ = 0;
  std::size_t message_count_ = 0;
  absl::flat_hash_set<WireKey> retired_;
  std::deque<WireKey> retired_order_;
  absl::flat_hash_set<WireKey> incomplete_;
  std::deque<WireKey> incomplete_order_;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_COLLECTIVES_ORPHAN_MESSAGES_H_
