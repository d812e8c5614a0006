// Small things about text.
#ifndef RINGD_PROTO_BASE_TEXT_H_
#define RINGD_PROTO_BASE_TEXT_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace ringd {

// The first `most` bytes of UTF-8, or a few less: not in the middle of a character.
absl::string_view CutToLength(absl::string_view text, std::size_t most) noexcept;

}  // namespace ringd

#endif  // RINGD_PROTO_BASE_TEXT_H_
