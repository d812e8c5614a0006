#include "daemon/service/link_watch.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "daemon/logging/log.h"

namespace ringd {
namespace {

constexpr std::chrono::seconds kLookInterval{1};

}  // namespace

bool LinkWatch::Look(Clock::time_point now) {
  if (now < next_look_) return false;
  next_look_ = now + kLookInterval;
  const std::optional<std::string> word = links_.Look();
  if (word.has_value() && (links_.Ready() || !used_.has_value())) LogInfo(*word);
  if (word.has_value() && !links_.Ready() && used_.has_value()) {
    LogWarning(absl::StrCat(problems(), ": jobs over several nodes fail where they need it"));
  }
  TakeNewcomers();
  return word.has_value();
}

void LinkWatch::TakeNewcomers() {
  if (!links_.Ready()) return;
  std::string addresses = addresses_();
  if (used_ == addresses) return;
  // An address that has just come may have to wait for the kernel (IPv6 looks for duplicates).
  const absl::Status status = use_();
  if (status.ok()) {
    if (used_.has_value()) {
      LogInfo(absl::StrCat("the interfaces have other addresses: ", addresses));
    }
    used_ = std::move(addresses);
    trouble_.clear();
  } else if (status.message() != trouble_) {
    trouble_ = std::string(status.message());
    LogError(absl::StrCat("these interfaces are not used yet: ", trouble_));
  }
}

}  // namespace ringd
