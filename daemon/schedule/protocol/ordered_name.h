// How an operation that is matched by order is called in messages and texts: "operation 17".
#ifndef RINGD_DAEMON_SCHEDULE_PROTOCOL_ORDERED_NAME_H_
#define RINGD_DAEMON_SCHEDULE_PROTOCOL_ORDERED_NAME_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace ringd {

inline std::string OrderedName(std::uint64_t number) { return absl::StrCat("operation ", number); }

// Nothing if it is no such name.
inline std::optional<std::uint64_t> OrderedNumber(absl::string_view name) {
  std::uint64_t number = 0;
  if (!absl::ConsumePrefix(&name, "operation ") || !absl::SimpleAtoi(name, &number)) {
    return std::nullopt;
  }
  return number;
}

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_PROTOCOL_ORDERED_NAME_H_
