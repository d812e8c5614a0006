// Text in columns.
#ifndef RINGD_CLIENT_CLI_TABLE_H_
#define RINGD_CLIENT_CLI_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ringd::cli {

enum class Colour : std::uint8_t { kNone, kBold, kDim, kRed, kGreen, kYellow };

// `text` in that colour if `enabled`. Control characters in it, which another user's job may have put
// there, are shown as '?', so that they can't drive the terminal.
std::string Paint(absl::string_view text, Colour colour, bool enabled);

// What a terminal shows of it: columns, one for each UTF-8 character.
std::size_t DisplayWidth(absl::string_view text);

enum class Align : std::uint8_t { kLeft, kRight };

struct Column {
  std::string title;
  Align align = Align::kLeft;
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
  // spaces. Empty if there are no rows.
  std::string Render(bool colours, absl::string_view indent = "") const;

 private:
  const std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_TABLE_H_
