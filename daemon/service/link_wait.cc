#include "daemon/service/link_wait.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ringd {

std::optional<std::string> LinkWait::Look() {
  const std::string before = std::exchange(problems_, describe_(interfaces_));
  if (problems_ == before) return std::nullopt;
  if (!problems_.empty()) return absl::StrCat("waiting for interfaces: ", problems_);
  return absl::StrCat("interfaces are ready: ", absl::StrJoin(interfaces_, ", "));
}

}  // namespace ringd
