#include "daemon/config/reload.h"

#include <variant>

#include "daemon/config/setting_table.h"

namespace ringd {

ChangedSettings CompareConfigs(const Config& before, const Config& now) {
  ChangedSettings changed;
  for (const Setting& setting : AllSettings()) {
    const bool differs =
        std::visit([&](auto field) { return before.*field != now.*field; }, setting.field);
    if (!differs) continue;
    (setting.reloaded ? changed.reloaded : changed.restarting).emplace_back(setting.key);
  }
  return changed;
}

void TakeReloaded(const Config& from, Config& to) {
  for (const Setting& setting : AllSettings()) {
    if (!setting.reloaded) continue;
    std::visit([&](auto field) { to.*field = from.*field; }, setting.field);
  }
}

}  // namespace ringd
