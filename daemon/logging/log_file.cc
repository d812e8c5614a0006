#include "daemon/logging/log_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/base/errno_status.h"
#include "proto/base/write_all.h"

namespace ringd {

absl::StatusOr<UniqueFd> LogFile::OpenPath(const std::string& path) {
  // A pipe that nobody reads would be waited for.
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY;
  UniqueFd fd(::open(path.c_str(), kFlags | O_NONBLOCK, 0644));
  if (fd.valid() && ::fcntl(fd.get(), F_SETFL, kFlags) == 0) return fd;
  return absl::UnavailableError(ErrnoStatus(errno, path).message());
}

absl::StatusOr<std::shared_ptr<LogFile>> LogFile::Open(const std::string& path) {
  absl::StatusOr<UniqueFd> fd = OpenPath(path);
  if (!fd.ok()) return fd.status();
  return std::shared_ptr<LogFile>(new LogFile(path, *std::move(fd)));
}

absl::Status LogFile::Reopen() {
  absl::StatusOr<UniqueFd> fd = OpenPath(path_);
  if (!fd.ok()) return fd.status();
  const std::lock_guard<std::mutex> lock(mutex_);
  fd_ = *std::move(fd);
  return absl::OkStatus();
}

void LogFile::sink_it_(const spdlog::details::log_msg& message) {
  spdlog::memory_buf_t line;
  formatter_->format(message, line);
  const int error = WriteAll(fd_.get(), absl::string_view(line.data(), line.size()));
  if (error != 0) {
    if (lost_++ == 0) Complain(absl::StrCat(std::strerror(error), ": lines are lost"));
  } else if (lost_ > 0) {
    Complain(absl::StrCat("lines are written again; ", std::exchange(lost_, 0), " were lost"));
  }
}

// systemd keeps it in the journal.
void LogFile::Complain(absl::string_view what) const {
  std::fputs(absl::StrCat("ringd: log_file ", path_, ": ", what, "\n").c_str(), stderr);
}

}  // namespace ringd
