#include "proto/base/text.h"

namespace ringd {
namespace {

// What stands in a clean line instead of this character; 0: the character itself.
char InsteadOf(absl::string_view character) noexcept {
  const auto lead = static_cast<unsigned char>(character[0]);
  if (lead >= '\t' && lead <= '\r') return ' ';
  return IsControl(character) ? '?' : '\0';
}

}  // namespace

std::size_t BytesOfFirst(absl::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (text.empty()) return 0;
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  std::size_t bytes = 0;
  if (lead >= 0xc2 && lead <= 0xdf) {
    bytes = 2;
  } else if ((lead & 0xf0) == 0xe0) {
    bytes = 3;
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    bytes = 4;
  } else {
    return 0;
  }
  if (text.size() < bytes) return 0;
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and what lies beyond U+10FFFF.
  const bool is_refused = (lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xed && byte(1) > 0x9f) ||
                          (lead == 0xf0 && byte(1) < 0x90) || (lead == 0xf4 && byte(1) > 0x8f);
  return is_refused ? 0 : bytes;
}

bool IsControl(absl::string_view character) noexcept {
  const auto lead = static_cast<unsigned char>(character[0]);
  if (lead < 0x20 || lead == 0x7f) return true;
  return lead == 0xc2 && static_cast<unsigned char>(character[1]) <= 0x9f;
}

absl::string_view CutToLength(absl::string_view text, std::size_t most) noexcept {
  if (text.size() <= most) return text;
  std::size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

bool IsUtf8(absl::string_view text) noexcept {
  while (!text.empty()) {
    const std::size_t bytes = BytesOfFirst(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string CleanLine(absl::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    const std::size_t bytes = BytesOfFirst(text);
    const absl::string_view character = text.substr(0, bytes == 0 ? 1 : bytes);
    const char instead = bytes == 0 ? '?' : InsteadOf(character);
    if (instead != '\0') {
      clean += instead;
    } else {
      clean.append(character.data(), character.size());
    }
    text.remove_prefix(character.size());
  }
  return clean;
}

}  // namespace ringd
