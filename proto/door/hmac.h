// SHA-256 and what is made of it.
#ifndef RINGD_PROTO_DOOR_HMAC_H_
#define RINGD_PROTO_DOOR_HMAC_H_

#include <array>
#include <cstddef>
#include <span>

#include "absl/strings/string_view.h"

namespace ringd {

inline constexpr std::size_t kSha256Bytes = 32;
using Sha256Digest = std::array<std::byte, kSha256Bytes>;

// Thread safety: any thread, as below.

// FIPS 180-4.
Sha256Digest Sha256(absl::string_view data) noexcept;

// HMAC-SHA256 (RFC 2104). An empty key is a key like any other.
Sha256Digest HmacSha256(absl::string_view key, absl::string_view data) noexcept;

// True if the two are equal. The time taken depends on the lengths only.
bool EqualInConstantTime(absl::string_view a, absl::string_view b) noexcept;

// Bytes as the functions above take them. Borrows.
inline absl::string_view AsText(std::span<const std::byte> bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace ringd

#endif  // RINGD_PROTO_DOOR_HMAC_H_
