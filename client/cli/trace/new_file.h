// A file that is there as a whole or not at all.
#ifndef RINGD_CLIENT_CLI_TRACE_NEW_FILE_H_
#define RINGD_CLIENT_CLI_TRACE_NEW_FILE_H_

#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ringd::cli {

// "-", "/dev/stdout" and its like.
bool IsStandardOutput(absl::string_view path) noexcept;

// Written under another name beside it, and renamed when it is complete. A device or a pipe stays
// what it is, and is written to directly; of a symbolic link the file is meant that it leads to.
//
// Thread safety: none.
// Ownership: removes what was written if it goes before Commit().
class NewFile {
 public:
  // Standard output, too (IsStandardOutput). Blocks while nobody reads from a pipe.
  //   The errno's status, which names the path: nothing can be written there.
  static absl::StatusOr<std::unique_ptr<NewFile>> Create(const std::string& path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  // The other name; empty: there is none.
  const std::string& temporary() const noexcept { return temporary_; }

  // Errors are told by Commit().
  void Write(absl::string_view text);
  absl::Status Commit();

 private:
  NewFile(std::string path, std::string target, std::string temporary, std::FILE* file)
      : path_(std::move(path)),
        target_(std::move(target)),
        temporary_(std::move(temporary)),
        file_(file) {}

  const std::string path_;  // as given; "-"
  const std::string target_;
  std::string temporary_;  // empty: there is none, or it has been renamed
  std::FILE* file_;        // null once it is closed
};

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_TRACE_NEW_FILE_H_
