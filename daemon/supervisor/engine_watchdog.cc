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

std::optional<EngineWatchdog::Word> EngineWatchdog::Look(const std::string& name,
                                                         std::uint64_t heartbeat,
                                                         EngineActivity::Moment activity,
                                                         Clock::time_point now) {
  const Clock::duration passed = now - std::exchange(last_look_, now).value_or(now);
  if (std::exchange(heartbeat_, heartbeat) != heartbeat) {
    const Clock::duration stood = std::exchange(still_, Clock::duration{0});
    if (std::exchange(told_, false)) {
      return Word{absl::StrCat(name, " goes on, after at least ", Seconds(stood)), {}};
    }
  } else {
    still_ += std::min<Clock::duration>(passed, kLongestLook);
  }
  if (passed >= kPatience) {
    return Word{absl::StrCat("ringd has not run for ", Seconds(passed),
                             ": it was stopped, or got no processor"),
                {}};
  }
  if (told_ || still_ < kPatience) return std::nullopt;
  told_ = true;
  Word word{
      absl::StrCat(name, " has stood still for ", Seconds(still_), " while ", Name(activity.doing)),
      {}};
  if (activity.communicator != 0) word.communicator = activity.communicator;
  return word;
}

}  // namespace ringd
