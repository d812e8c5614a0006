// Settings that a ringd takes over while it runs (SIGHUP).
#ifndef RINGD_DAEMON_CONFIG_RELOAD_H_
#define RINGD_DAEMON_CONFIG_RELOAD_H_

#include <string>
#include <vector>

#include "daemon/config/config.h"

namespace ringd {

// Keys of settings that differ between two configurations, in the order of --help.
struct ChangedSettings {
  std::vector<std::string> reloaded;    // may be taken over
  std::vector<std::string> restarting;  // need a restart
};

// Both as they were loaded: ResolveNetwork fills in what nobody wrote.
ChangedSettings CompareConfigs(const Config& before, const Config& now);

// Copies the settings that may be taken over (Setting::reloaded), and nothing else.
void TakeReloaded(const Config& from, Config& to);

}  // namespace ringd

#endif  // RINGD_DAEMON_CONFIG_RELOAD_H_
