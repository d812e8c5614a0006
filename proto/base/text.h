// Small things about text.
#ifndef RINGD_PROTO_BASE_TEXT_H_
#define RINGD_PROTO_BASE_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace ringd {

// The first `most` bytes of UTF-8, or a few less: not in the middle of a character.
absl::string_view CutToLength(absl::string_view text, std::size_t most) noexcept;

// Whether it is well-formed UTF-8 (RFC 3629): protobuf's strings insist on that.
bool IsUtf8(absl::string_view text) noexcept;

// The bytes of the character with which `text` begins; 0: none, or it is not well-formed UTF-8.
std::size_t BytesOfFirst(absl::string_view text) noexcept;

// Whether such a character gives a terminal commands, or ends lines (ISO/IEC 6429: C0, DEL, C1).
bool IsControl(absl::string_view character) noexcept;

// Text from elsewhere, as one line of UTF-8 that gives a terminal no command. White space that
// moves a cursor (tabs, ends of lines) becomes a space each; other control characters and bytes
// that are no UTF-8 become question marks.
std::string CleanLine(absl::string_view text);

}  // namespace ringd

#endif  // RINGD_PROTO_BASE_TEXT_H_
