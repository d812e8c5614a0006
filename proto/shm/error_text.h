// Words for failed operations, so that no call is needed to learn why one failed. Written by ringd.
#ifndef RINGD_PROTO_SHM_ERROR_TEXT_H_
#define RINGD_PROTO_SHM_ERROR_TEXT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace ringd {

// A sequence lock: an odd version means that ringd is writing. The text is bytes 0 .. length-1.
struct ErrorTextSlot {
  std::atomic<std::uint32_t> version;
  std::uint32_t length;
  char text[1016];
};
static_assert(sizeof(ErrorTextSlot) == 1024);

inline constexpr std::uint32_t kErrorTextSlots = 64;

// Stores `text`, cut to the slot's size, and returns the version under which it can be read. ringd
// only, one thread. `version` is ringd's own count for this slot, since shared memory is not
// believed.
inline std::uint32_t WriteErrorText(ErrorTextSlot& slot, std::uint32_t version,
                                    absl::string_view text) noexcept {
  const std::uint32_t length =
      static_cast<std::uint32_t>(text.size() < sizeof(slot.text) ? text.size() : sizeof(slot.text));
  slot.version.store(version + 1, std::memory_order_relaxed);
  // Readers that see a byte of the new text also see the odd version (fence pairs with the
  // reader's).
  std::atomic_thread_fence(std::memory_order_release);
  std::memcpy(slot.text, text.data(), length);
  slot.length = length;
  slot.version.store(version + 2, std::memory_order_release);
  return version + 2;
}

// The text written under `version`, or nothing if it has been replaced. Any thread of the client.
inline std::optional<std::string> ReadErrorText(const ErrorTextSlot& slot, std::uint32_t version) {
  if (slot.version.load(std::memory_order_acquire) != version) return std::nullopt;
  const std::uint32_t length = slot.length;
  if (length > sizeof(slot.text)) return std::nullopt;
  std::string text(slot.text, length);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (slot.version.load(std::memory_order_relaxed) != version) return std::nullopt;
  return text;
}

}  // namespace ringd

#endif  // RINGD_PROTO_SHM_ERROR_TEXT_H_
