// Files on disks that may be full.
#ifndef RINGD_CLIENT_CLI_RUN_FILE_SPACE_H_
#define RINGD_CLIENT_CLI_RUN_FILE_SPACE_H_

#include <string>

namespace ringd::cli {

// "; no space is left on the disk of FOLDER" if that is so, else nothing: why a file there may lack
// what somebody wanted to say.
std::string DescribeFullDisk(const std::string& folder);

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_RUN_FILE_SPACE_H_
