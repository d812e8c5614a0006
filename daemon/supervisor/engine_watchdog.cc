#include "daemon/supervisor/engine_watchdog.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ringd {
namespace {

std::string Seconds(Clock::duration time) {
  return absl::StrCat(std::chrono::duration_cast<std::chrono::seconds>(time).count(), " s");
}

}  // namespace

std::string EngineWatchdog::DescribeStill(const Sight& sight, Clock::time_point now) const {
  const std::string still = absl::StrCat("has stood still for ", Seconds(still_));
  if (now - sight.heard < kSilence) {
    return absl::StrCat(still, " while ", Name(sight.activity.doing));
  }
  if (sight.is_stopped) return absl::StrCat(still, ": its process is stopped");
  return absl::StrCat(still, " without a sign of life");
}

std::optional<EngineWatchdog::Word> EngineWatchdog::Look(const std::string& name,
                                                         const Sight& sight,
                                                         Clock::time_point now) {
  const Clock::duration passed = now - std::exchange(last_look_, now).value_or(now);
  if (std::exchange(heartbeat_, sight.heartbeat) != sight.heartbeat) {
    const Clock::duration stood = std::exchange(still_, Clock::duration{0});
    if (std::exchange(told_, false)) {
      return Word{absl::StrCat(name, " goes on, after at least ", Seconds(stood)), {}};
    }
  } else if (!sight.is_unread && (now - sight.heard < kSilence || !sight.is_runnable)) {
    still_ += std::min<Clock::duration>(passed, kLongestLook);
  }
  if (passed >= kPatience) {
    return Word{absl::StrCat("ringd has not run for ", Seconds(passed),
                             ": it was stopped, or got no processor"),
                {}};
  }
  if (told_ || still_ < kPatience) return std::nullopt;
  told_ = true;
  Word word{absl::StrCat(name, " ", DescribeStill(sight, now)), {}};
  if (sight.activity.communicator != 0) word.communicator = sight.activity.communicator;
  return word;
}

}  // namespace ringd
