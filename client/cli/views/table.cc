#include "client/cli/views/table.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/base/text.h"

namespace ringd::cli {
namespace {

constexpr absl::string_view kGap = "  ";
constexpr absl::string_view kCut = "...";
// No text is shortened to less.
constexpr std::size_t kLeastShortened = 8;
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

// Where the character ends that begins at `at`.
std::size_t NextCharacter(absl::string_view text, std::size_t at) {
  ++at;
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
  return at;
}

std::size_t Total(const std::vector<std::size_t>& widths) {
  std::size_t total = 0;
  for (const std::size_t width : widths) {
    if (width > 0) total += width + (total > 0 ? kGap.size() : 0);
  }
  return total;
}

}  // namespace

std::string Paint(absl::string_view text, Colour colour, bool enabled) {
  std::string clean = CleanLine(text);
  if (!enabled || colour == Colour::kNone || clean.empty()) return clean;
  return absl::StrCat(Escape(colour), clean, kReset);
}

std::size_t DisplayWidth(absl::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;  // not a continuation byte
  }));
}

std::string ShortenMiddle(absl::string_view text, std::size_t width) {
  const std::size_t all = DisplayWidth(text);
  if (all <= width) return std::string(text);
  if (width <= kCut.size()) return std::string(kCut.substr(0, width));
  const std::size_t kept = width - kCut.size();
  const std::size_t behind = kept / 2;  // the beginning gets the odd one
  std::size_t head = 0;
  for (std::size_t i = 0; i < kept - behind; ++i) head = NextCharacter(text, head);
  std::size_t tail = 0;
  for (std::size_t i = 0; i < all - behind; ++i) tail = NextCharacter(text, tail);
  return absl::StrCat(text.substr(0, head), kCut, text.substr(tail));
}

std::string WrapWords(absl::string_view text, absl::string_view indent, std::size_t width) {
  if (width == 0) return std::string(text);
  std::string out;
  std::size_t column = DisplayWidth(indent);
  bool first = true;
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    const std::size_t needed = DisplayWidth(word);
    if (!first && column + 1 + needed > width) {
      absl::StrAppend(&out, "\n", indent);
      column = DisplayWidth(indent);
    } else if (!first) {
      out += ' ';
      ++column;
    }
    absl::StrAppend(&out, word);
    column += needed;
    first = false;
  }
  return out;
}

std::vector<std::size_t> Table::Widths(std::size_t available) const {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t width = DisplayWidth(columns_[i].title);
    for (const auto& row : rows_) width = std::max(width, DisplayWidth(row[i].text));
    widths.push_back(width);
  }
  if (available == 0) return widths;
  for (std::size_t i = columns_.size(); i-- > 0 && Total(widths) > available;) {
    if (columns_[i].fit == Fit::kOptional) widths[i] = 0;
  }
  while (Total(widths) > available) {
    std::size_t* widest = nullptr;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const std::size_t least = std::max(kLeastShortened, DisplayWidth(columns_[i].title));
      if (columns_[i].fit != Fit::kShortened || widths[i] <= least) continue;
      if (widest == nullptr || widths[i] > *widest) widest = &widths[i];
    }
    if (widest == nullptr) break;
    --*widest;
  }
  return widths;
}

std::string Table::Render(const Look& look, absl::string_view indent) const {
  if (rows_.empty()) return "";
  const std::vector<std::size_t> widths = Widths(
      look.width == 0 ? 0 : std::max<std::size_t>(look.width, indent.size() + 1) - indent.size());
  std::vector<Cell> header;
  for (const Column& column : columns_) header.emplace_back(column.title, Colour::kBold);

  std::string out;
  const auto render_row = [&](const std::vector<Cell>& row) {
    std::string line(indent);
    std::size_t owed = 0;  // spaces, written only if something follows
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (widths[i] == 0) continue;
      const std::string text = ShortenMiddle(row[i].text, widths[i]);
      const std::size_t padding = widths[i] - DisplayWidth(text);
      const std::size_t before = columns_[i].align == Align::kRight ? padding : 0;
      if (!text.empty()) {
        line.append(owed + before, ' ');
        absl::StrAppend(&line, Paint(text, row[i].colour, look.colours));
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
