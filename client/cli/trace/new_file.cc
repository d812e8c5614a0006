#include "client/cli/trace/new_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/errno_status.h"

namespace ringd::cli {

bool IsStandardOutput(absl::string_view path) noexcept {
  return path == "-" || path == "/dev/stdout" || path == "/dev/fd/1" || path == "/proc/self/fd/1";
}

absl::StatusOr<std::unique_ptr<NewFile>> NewFile::Create(const std::string& path) {
  if (IsStandardOutput(path)) {
    return std::unique_ptr<NewFile>(new NewFile("-", "", "", stdout));
  }
  struct stat there {};
  const bool is_there = ::stat(path.c_str(), &there) == 0;
  if (is_there && S_ISDIR(there.st_mode)) {
    return ErrnoStatus(EISDIR, absl::StrCat("write ", path));
  }
  // One that leads nowhere yet is made by opening it.
  std::error_code error;
  const bool is_link = std::filesystem::is_symlink(path, error);
  const std::string target = is_link ? std::filesystem::canonical(path, error).string() : path;
  if ((is_there && !S_ISREG(there.st_mode)) || target.empty()) {
    std::FILE* const file = std::fopen(path.c_str(), "we");
    if (file == nullptr) return ErrnoStatus(errno, absl::StrCat("write ", path));
    return std::unique_ptr<NewFile>(new NewFile(path, "", "", file));
  }
  std::string temporary = absl::StrCat(target, ".XXXXXX");
  const int fd = ::mkstemp(temporary.data());
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("write ", path));
  // As any new file: the process's mask decides who may read it.
  const mode_t mask = ::umask(0);
  ::umask(mask);
  std::FILE* const file = ::fchmod(fd, 0666 & ~mask) == 0 ? ::fdopen(fd, "w") : nullptr;
  if (file == nullptr) {
    const absl::Status status = ErrnoStatus(errno, absl::StrCat("write ", path));
    ::close(fd);
    ::unlink(temporary.c_str());
    return status;
  }
  return std::unique_ptr<NewFile>(new NewFile(path, target, std::move(temporary), file));
}

NewFile::~NewFile() {
  if (file_ != nullptr && file_ != stdout) std::fclose(file_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void NewFile::Write(absl::string_view text) {
  // The stream keeps in mind that it failed.
  static_cast<void>(std::fwrite(text.data(), 1, text.size(), file_));
}

absl::Status NewFile::Commit() {
  const bool failed = std::ferror(file_) != 0;
  std::FILE* const file = std::exchange(file_, nullptr);
  const int closed = file == stdout ? std::fflush(file) : std::fclose(file);
  if (failed || closed != 0) {
    return ErrnoStatus(errno, absl::StrCat("write ", path_ == "-" ? "standard output" : path_));
  }
  if (temporary_.empty()) return absl::OkStatus();
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("write ", path_));
  }
  temporary_.clear();
  return absl::OkStatus();
}

}  // namespace ringd::cli
