#include "client/cli/views/printable.h"

#include <cstddef>

namespace ringd::cli {

std::string Printable(absl::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    const bool is_c1 = byte == 0xC2 && next >= 0x80 && next <= 0x9F;
    if (is_c1) ++i;
    clean += byte < 0x20 || byte == 0x7F || is_c1 ? '?' : static_cast<char>(byte);
  }
  return clean;
}

}  // namespace ringd::cli
