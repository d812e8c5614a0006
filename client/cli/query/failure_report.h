// How a command of ringctl that asks a ringd tells that it has failed.
#ifndef RINGD_CLIENT_CLI_QUERY_FAILURE_REPORT_H_
#define RINGD_CLIENT_CLI_QUERY_FAILURE_REPORT_H_

#include <string>

#include "absl/status/status.h"

namespace ringd::cli {

// Of a call's status: nobody answers.
bool IsUnreachable(const absl::Status& status);

// To standard error. Returns the ExitCode. `unreachable`: no ringd answers at the socket.
int ReportFailure(const std::string& socket, const absl::Status& status, bool unreachable);

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_QUERY_FAILURE_REPORT_H_
