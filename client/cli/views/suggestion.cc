#include "client/cli/views/suggestion.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"

namespace ringd::cli {
namespace {

// Nobody means a word of ours by anything longer.
constexpr std::size_t kLongestWord = 40;
constexpr std::size_t kLettersForAnError = 3;
// So many letters name a command or option that begins with them.
constexpr std::size_t kLettersForABeginning = 2;

}  // namespace

std::size_t TypingErrors(absl::string_view a, absl::string_view b) {
  // Optimal string alignment: row i has the errors between the first i letters of `a` and the
  // first j of `b`.
  std::vector<std::size_t> before_last;
  std::vector<std::size_t> last(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::vector<std::size_t> row(b.size() + 1);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    before_last = std::exchange(last, std::move(row));
  }
  return last[b.size()];
}

std::string Suggestion(absl::string_view typed, std::span<const std::string> known) {
  if (typed.size() > kLongestWord) return "";
  std::string best;
  std::size_t least = SIZE_MAX;
  for (const std::string& word : known) {
    const bool begins = typed.size() >= kLettersForABeginning && absl::StartsWith(word, typed);
    const std::size_t errors = begins ? 0 : TypingErrors(typed, word);
    const std::size_t allowed =
        std::max<std::size_t>(1, std::max(typed.size(), word.size()) / kLettersForAnError);
    if (errors <= allowed && errors < least && errors < typed.size()) {
      best = word;
      least = errors;
    }
  }
  return best;
}

}  // namespace ringd::cli
