#include "client/cli/views/human_units.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ringd::cli {
namespace {

// With one decimal below 10, unless that is 0.
std::string ShortNumber(double number) {
  std::string precise = absl::StrFormat("%.1f", number);
  if (number < 9.95 && !absl::EndsWith(precise, ".0")) return precise;
  return absl::StrFormat("%.0f", number);
}

std::string TwoUnits(std::int64_t whole, const char* unit, std::int64_t rest,
                     const char* rest_unit) {
  if (rest == 0) return absl::StrCat(whole, " ", unit);
  return absl::StrCat(whole, " ", unit, " ", rest, " ", rest_unit);
}

}  // namespace

std::string HumanBytes(double bytes) {
  constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  // 1023.5 and more would be shown as 1024.
  while (bytes >= 1023.5 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  if (unit == 0) return absl::StrFormat("%.0f B", bytes);
  return absl::StrCat(ShortNumber(bytes), " ", kUnits[unit]);
}

std::string HumanRate(double bytes_per_second) {
  return absl::StrCat(HumanBytes(bytes_per_second), "/s");
}

std::string HumanDuration(double seconds) {
  seconds = std::max(seconds, 0.0);
  if (seconds == 0) return "0 s";
  if (seconds < 0.001) return absl::StrFormat("%.0f us", seconds * 1e6);
  if (seconds < 0.9995) return absl::StrFormat("%.0f ms", seconds * 1e3);
  if (seconds < 59.5) return absl::StrCat(ShortNumber(seconds), " s");
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 3600) return TwoUnits(whole / 60, "min", whole % 60, "s");
  if (whole < 86400) return TwoUnits(whole / 3600, "h", whole / 60 % 60, "min");
  return TwoUnits(whole / 86400, "d", whole / 3600 % 24, "h");
}

std::string HumanCount(std::uint64_t count) {
  const std::string digits = absl::StrCat(count);
  std::string grouped;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) grouped += ',';
    grouped += digits[i];
  }
  return grouped;
}

std::string HumanShare(double share) { return absl::StrCat(ShortNumber(share * 100), " %"); }

std::string HumanNumber(double number) {
  if (number > 0 && number < 0.995) return absl::StrFormat("%.2f", number);
  return ShortNumber(number);
}

}  // namespace ringd::cli
