// `ringctl version`: which ringctl this is, and which ringd it finds.
#ifndef RINGD_CLIENT_CLI_QUERY_VERSION_COMMAND_H_
#define RINGD_CLIENT_CLI_QUERY_VERSION_COMMAND_H_

#include <string>

namespace ringd::cli {

// Prints to standard output. The result is an ExitCode: kDone also if no ringd answers.
int VersionCommand(const std::string& socket, bool json);

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_QUERY_VERSION_COMMAND_H_
