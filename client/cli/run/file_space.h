// Files on disks that may be full.
#ifndef RINGD_CLIENT_CLI_RUN_FILE_SPACE_H_
#define RINGD_CLIENT_CLI_RUN_FILE_SPACE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace ringd::cli {

// Writes all of it to a file. 0, or the errno that says why not: ENOSPC also if only a part found
// room.
int WriteAll(int file, absl::string_view bytes);

// "; no space is left on the disk of FOLDER" if that is so, else nothing: why a file there may lack
// what somebody wanted to say.
std::string DescribeFullDisk(const std::string& folder);

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_RUN_FILE_SPACE_H_
