#include "client/cli/table.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ringd::cli {
namespace {

constexpr absl::string_view kGap = "  ";
constexpr absl::string_view kReset = "\x1b[0m";

absl::string_view Escape(Colour colour) {
  switch (colour) {
    case Colour::kNone:
      return "";
    case Colour::kBold:
      return "\x1b[1m";
    case Colour::kDim:
      return "\x1b[2m";
    case Colour::kRed:
      return "\x1b[31m";
    case Colour::kGreen:
      return "\x1b[32m";
    case Colour::kYellow:
      return "\x1b[33m";
  }
  return "";
}

std::string WithoutControls(absl::string_view text) {
  std::string clean(text);
  for (char& c : clean) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return clean;
}

}  // namespace

std::string Paint(absl::string_view text, Colour colour, bool enabled) {
  std::string clean = WithoutControls(text);
  if (!enabled || colour == Colour::kNone || clean.empty()) return clean;
  return absl::StrCat(Escape(colour), clean, kReset);
}

std::size_t DisplayWidth(absl::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;  // not a continuation byte
  }));
}

std::string Table::Render(bool colours, absl::string_view indent) const {
  if (rows_.empty()) return "";
  std::vector<std::size_t> widths;
  std::vector<Cell> header;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t width = DisplayWidth(columns_[i].title);
    for (const auto& row : rows_) width = std::max(width, DisplayWidth(row[i].text));
    widths.push_back(width);
    header.emplace_back(columns_[i].title, Colour::kBold);
  }

  std::string out;
  const auto render_row = [&](const std::vector<Cell>& row) {
    std::string line(indent);
    std::size_t owed = 0;  // spaces, written only if something follows
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::size_t padding = widths[i] - DisplayWidth(row[i].text);
      const std::size_t before = columns_[i].align == Align::kRight ? padding : 0;
      if (!row[i].text.empty()) {
        line.append(owed + before, ' ');
        absl::StrAppend(&line, Paint(row[i].text, row[i].colour, colours));
        owed = padding - before;
      } else {
        owed += padding;
      }
      owed += kGap.size();
    }
    absl::StrAppend(&out, line, "\n");
  };
  render_row(header);
  for (const auto& row : rows_) render_row(row);
  return out;
}

}  // namespace ringd::cli
