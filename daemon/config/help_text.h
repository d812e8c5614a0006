// What `ringd --help` prints.
#ifndef RINGD_DAEMON_CONFIG_HELP_TEXT_H_
#define RINGD_DAEMON_CONFIG_HELP_TEXT_H_

#include <string>

namespace ringd {

// Made from the table of settings. No line has more than 80 columns.
std::string HelpText();

}  // namespace ringd

#endif  // RINGD_DAEMON_CONFIG_HELP_TEXT_H_
