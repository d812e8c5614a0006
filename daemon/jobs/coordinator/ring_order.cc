#include "daemon/jobs/coordinator/ring_order.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ringd {
namespace {

// With fewer nodes an order changes nothing.
constexpr std::size_t kFewestInOrder = 3;
constexpr std::size_t kMostNamed = 8;

// Those of `names` that `others` has not.
std::vector<std::string> Missing(const std::vector<std::string>& names,
                                 const std::vector<std::string>& others) {
  std::vector<std::string> missing;
  for (const std::string& name : names) {
    if (std::find(others.begin(), others.end(), name) == others.end()) missing.push_back(name);
  }
  return missing;
}

std::string Listed(const std::vector<std::string>& names) {
  const std::size_t shown = std::min(names.size(), kMostNamed);
  std::string text =
      absl::StrJoin(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", ");
  if (shown < names.size()) absl::StrAppend(&text, " and ", names.size() - shown, " more");
  return text;
}

}  // namespace

std::string DescribeMisfit(const std::vector<std::string>& wanted,
                           const std::vector<std::string>& nodes) {
  if (wanted.empty() || nodes.size() < kFewestInOrder) return "";
  const std::vector<std::string> unnamed = Missing(nodes, wanted);
  if (unnamed.empty()) return "";
  const std::vector<std::string> strangers = Missing(wanted, nodes);
  if (unnamed.size() == nodes.size()) {
    return absl::StrCat("names none of the job's nodes (", Listed(nodes),
                        ") and is not followed; it names ", Listed(strangers));
  }
  std::string text = absl::StrCat("does not name ", Listed(unnamed),
                                  ", which the ring takes behind the nodes that it names");
  if (strangers.empty()) return text;
  return absl::StrCat(text, "; no nodes of the job are ", Listed(strangers));
}

}  // namespace ringd
