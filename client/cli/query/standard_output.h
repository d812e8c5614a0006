// What ringctl prints for programs and people.
#ifndef RINGD_CLIENT_CLI_QUERY_STANDARD_OUTPUT_H_
#define RINGD_CLIENT_CLI_QUERY_STANDARD_OUTPUT_H_

#include <string>

namespace ringd::cli {

// Writes all of `text` to standard output. kDone; or kFailed if that can't be written, which
// standard error tells, unless the reader has only gone.
int Print(const std::string& text);

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_QUERY_STANDARD_OUTPUT_H_
