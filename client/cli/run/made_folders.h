// Folders that a run writes to, and that it may have to make.
#ifndef RINGD_CLIENT_CLI_RUN_MADE_FOLDERS_H_
#define RINGD_CLIENT_CLI_RUN_MADE_FOLDERS_H_

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace ringd::cli {

// Thread safety: one thread.
// Ownership: the destructor removes what it made and nobody put anything into; what was there
//   before stays.
class MadeFolders {
 public:
  MadeFolders() = default;
  ~MadeFolders();

  MadeFolders(const MadeFolders&) = delete;
  MadeFolders& operator=(const MadeFolders&) = delete;

  // Makes the folder, with those above it, unless it is there.
  //   kFailedPrecondition: it can't be made, is no folder or can't be written, also because the
  //     disk is full; the message names it and says why.
  absl::Status Make(const std::string& folder);

 private:
  std::vector<std::filesystem::path> made_;  // the outer ones first
};

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_RUN_MADE_FOLDERS_H_
