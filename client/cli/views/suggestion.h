// What was probably meant by a word that ringctl does not know.
#ifndef RINGD_CLIENT_CLI_VIEWS_SUGGESTION_H_
#define RINGD_CLIENT_CLI_VIEWS_SUGGESTION_H_

#include <cstddef>
#include <span>
#include <string>

#include "absl/strings/string_view.h"

namespace ringd::cli {

// How many letters must be added, left out, replaced, or swapped with their neighbour to make `a`
// of `b`.
std::size_t TypingErrors(absl::string_view a, absl::string_view b);

// The word of `known` that `typed` begins, or is like: one error for every three letters at most.
// Empty: there is none.
std::string Suggestion(absl::string_view typed, std::span<const std::string> known);

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_VIEWS_SUGGESTION_H_
