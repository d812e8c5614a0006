// Sizes and durations as people write them: "64MiB", "5s".
#ifndef RINGD_DAEMON_CONFIG_QUANTITY_H_
#define RINGD_DAEMON_CONFIG_QUANTITY_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ringd {

// A number and a unit, with or without a space between, fractions allowed if the result is whole:
// B, KiB, MiB, GiB, TiB (powers of 1024), kB, MB, GB, TB (powers of 1000), none for bytes.
//   kInvalidArgument: anything else; the message says what is allowed.
absl::StatusOr<std::uint64_t> ParseBytes(absl::string_view text);

// A number and one of ns, us, ms, s, min, h; a number alone is seconds, as trainers
// (client/ringd.h) write the variables that both read, such as RINGD_START_TIMEOUT.
//   kInvalidArgument: anything else; the message says what is allowed.
absl::StatusOr<std::chrono::nanoseconds> ParseDuration(absl::string_view text);

// The shortest text that parses to the same value: "64MiB", "1500ms".
std::string FormatBytes(std::uint64_t bytes);
std::string FormatDuration(std::chrono::nanoseconds duration);

}  // namespace ringd

#endif  // RINGD_DAEMON_CONFIG_QUANTITY_H_
