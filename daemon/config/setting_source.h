// Settings as they were written somewhere, before they are read.
#ifndef RINGD_DAEMON_CONFIG_SETTING_SOURCE_H_
#define RINGD_DAEMON_CONFIG_SETTING_SOURCE_H_

#include <string>
#include <vector>

namespace ringd {

// One assignment. The key may be unknown and the text may be nonsense: the loader judges.
struct WrittenSetting {
  std::string key;
  std::string text;
  std::string origin;  // "/etc/ringd/ringd.toml:12", "variable RINGD_SOCKET", "flag --socket"
};

using WrittenSettings = std::vector<WrittenSetting>;

}  // namespace ringd

#endif  // RINGD_DAEMON_CONFIG_SETTING_SOURCE_H_
