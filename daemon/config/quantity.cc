#include "daemon/config/quantity.h"

#include <array>
#include <cmath>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace ringd {
namespace {

struct Unit {
  absl::string_view name;
  std::uint64_t factor;
};

// For reading; formatting takes the first unit that divides the value, so the larger ones come
// first.
constexpr std::array<Unit, 10> kByteUnits = {{
    {"TiB", std::uint64_t{1} << 40},
    {"GiB", std::uint64_t{1} << 30},
    {"MiB", std::uint64_t{1} << 20},
    {"KiB", std::uint64_t{1} << 10},
    {"TB", 1'000'000'000'000},
    {"GB", 1'000'000'000},
    {"MB", 1'000'000},
    {"kB", 1'000},
    {"B", 1},
    {"", 1},
}};

constexpr std::array<Unit, 7> kDurationUnits = {{
    {"h", 3'600'000'000'000},
    {"min", 60'000'000'000},
    {"s", 1'000'000'000},
    {"ms", 1'000'000},
    {"us", 1'000},
    {"ns", 1},
    {"", 1'000'000'000},
}};

// The largest value read: the range of std::chrono::nanoseconds, plenty for bytes too.
constexpr double kLargest = 9.2e18;

// `number` is digits with at most one point; `unit` the letters behind. No value: not of this form,
// unknown unit, not whole, or too large.
std::optional<std::uint64_t> Parse(absl::string_view text, std::span<const Unit> units) {
  text = absl::StripAsciiWhitespace(text);
  const std::size_t end = text.find_first_not_of("0123456789.");
  const absl::string_view number = text.substr(0, end);
  const absl::string_view unit =
      end == absl::string_view::npos ? "" : absl::StripLeadingAsciiWhitespace(text.substr(end));
  for (const Unit& candidate : units) {
    if (candidate.name != unit) continue;
    std::uint64_t whole = 0;
    if (absl::SimpleAtoi(number, &whole)) {
      if (static_cast<double>(whole) * static_cast<double>(candidate.factor) > kLargest) return {};
      return whole * candidate.factor;
    }
    double fraction = 0;
    if (!absl::SimpleAtod(number, &fraction)) return {};
    const double value = fraction * static_cast<double>(candidate.factor);
    // 0.1s is not exact in binary: rounding to the unit's grain decides, not equality. Nor is 1.1h,
    // of which a double has fewer digits behind the point.
    const double tolerance = std::max(1e-6, value * 1e-15);
    if (value > kLargest || std::abs(value - std::round(value)) > tolerance) return {};
    return static_cast<std::uint64_t>(std::llround(value));
  }
  return {};
}

std::string Format(std::uint64_t value, std::span<const Unit> units) {
  for (const Unit& unit : units) {
    if (value != 0 && value % unit.factor == 0) return absl::StrCat(value / unit.factor, unit.name);
  }
  return "0";
}

}  // namespace

absl::StatusOr<std::uint64_t> ParseBytes(absl::string_view text) {
  const auto bytes = Parse(text, kByteUnits);
  if (bytes.has_value()) return *bytes;
  return absl::InvalidArgumentError(
      "a size is a number with one of B, KiB, MiB, GiB, TiB, kB, MB, GB, TB, such as \"64MiB\"");
}

absl::StatusOr<std::chrono::nanoseconds> ParseDuration(absl::string_view text) {
  const auto nanos = Parse(text, kDurationUnits);
  if (nanos.has_value()) return std::chrono::nanoseconds(*nanos);
  return absl::InvalidArgumentError(
      "a duration is a number of seconds or a number with one of ns, us, ms, s, min, h, such as "
      "\"5s\"");
}

std::string FormatBytes(std::uint64_t bytes) {
  // The decimal units read badly for values that are powers of two, and the reverse; bytes then.
  return Format(bytes, std::span(kByteUnits).first(4)) != "0"
             ? Format(bytes, std::span(kByteUnits).first(4))
             : Format(bytes, std::span(kByteUnits).subspan(4));
}

std::string FormatDuration(std::chrono::nanoseconds duration) {
  return Format(static_cast<std::uint64_t>(duration.count()), kDurationUnits);
}

}  // namespace ringd
