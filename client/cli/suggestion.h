// What was probably meant by a word that ringctl does not know.
#ifndef RINGD_CLIENT_CLI_SUGGESTION_H_
#define RINGD_CLIENT_CLI_SUGGESTION_H_

#include <cstddef>
#include <span>
#include <string>

#include "absl/strings/string_view.h"

namespace ringd::cli {

// How many letters must be typed, left out, replaced, or swapped with their neighbour to make `a` of `b`.
std::size_t TypingErrors(absl::string_view a, absl::string_view b);

// The word of `known` that `typed` is like: one error for every three letters, or its beginning. Empty: none is.
std::string Suggestion(absl::string_view typed, std::span<const std::string> known);

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_SUGGESTION_H_
