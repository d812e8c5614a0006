// Text from elsewhere that is to be shown on a terminal.
#ifndef RINGD_CLIENT_CLI_VIEWS_PRINTABLE_H_
#define RINGD_CLIENT_CLI_VIEWS_PRINTABLE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace ringd::cli {

// With a question mark for each control character (ISO/IEC 6429: C0, DEL, and C1 in UTF-8), line
// ends among them: no name moves the cursor or gives the terminal a command.
std::string Printable(absl::string_view text);

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_VIEWS_PRINTABLE_H_
