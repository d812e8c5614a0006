// Text in columns.
#ifndef RINGD_CLIENT_CLI_VIEWS_TABLE_H_
#define RINGD_CLIENT_CLI_VIEWS_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ringd::cli {

enum class Colour : std::uint8_t { kNone, kBold, kDim, kRed, kGreen, kYellow };

// `text` in that colour if `enabled`. Control characters in it, which another user's job may have
// put there, are shown as '?', so that they can't drive the terminal.
std::string Paint(absl::string_view text, Colour colour, bool enabled);

// What a terminal shows of it: columns, one for each UTF-8 character.
std::size_t DisplayWidth(absl::string_view text);

// How text is to be laid out.
struct Look {
  bool colours = false;
  std::size_t width = 0;  // columns that it may take; 0: as many as it likes
};

// At most `width` columns of it, with "..." in place of its middle if that is less than all.
std::string ShortenMiddle(absl::string_view text, std::size_t width);

// The words of `text` in lines of at most `width` columns, if words are that short; 0: in one line.
// Lines but the first begin with `indent`, which counts for the first one, too. No line end at the
// end.
std::string WrapWords(absl::string_view text, absl::string_view indent, std::size_t width);

enum class Align : std::uint8_t { kLeft, kRight };

// What happens to a column if the table would be wider than it may be.
enum class Fit : std::uint8_t {
  kWhole,      // nothing
  kShortened,  // long texts lose their middle
  kOptional,   // it is left out, the last of several first; before anything is shortened
};

struct Column {
  std::string title;
  Align align = Align::kLeft;
  Fit fit = Fit::kWhole;
};

struct Cell {
  Cell(std::string text, Colour colour = Colour::kNone)  // NOLINT: rows are written as lists
      : text(std::move(text)), colour(colour) {}
  Cell(const char* text, Colour colour = Colour::kNone)  // NOLINT
      : Cell(std::string(text), colour) {}

  std::string text;
  Colour colour;
};

// Thread safety: none.
class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // As many cells as columns.
  void AddRow(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
  bool empty() const noexcept { return rows_.empty(); }

  // Header and rows, each line beginning with `indent` and ending in a line end, without trailing
  // spaces. Empty if there are no rows. Fits look.width if its columns' Fit allows that.
  std::string Render(const Look& look, absl::string_view indent = "") const;

 private:
  // What a column takes; 0: it is left out.
  std::vector<std::size_t> Widths(std::size_t available) const;

  const std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_VIEWS_TABLE_H_
