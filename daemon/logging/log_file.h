// The file that log lines are appended to.
#ifndef RINGD_DAEMON_LOGGING_LOG_FILE_H_
#define RINGD_DAEMON_LOGGING_LOG_FILE_H_

#include <spdlog/sinks/base_sink.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/base/unique_fd.h"

namespace ringd {

// Each line is one write: nothing is held back, and lines of several processes don't mix. What the
// disk has no room for is lost; standard error tells so, and how many lines, once there is room.
//
// Thread safety: all methods from any thread.
class LogFile final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  // Makes the file if there is none. kUnavailable: it can't be opened; the message has the path.
  static absl::StatusOr<std::shared_ptr<LogFile>> Open(const std::string& path);

  // Goes on with a file of the same name, for which the old one has made room by being renamed or
  // removed.
  // kUnavailable: it can't be opened; then the old one is kept.
  absl::Status Reopen();

 private:
  LogFile(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  static absl::StatusOr<UniqueFd> OpenPath(const std::string& path);

  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override {}
  void Complain(absl::string_view what) const;

  const std::string path_;
  UniqueFd fd_;             // behind base_sink's mutex
  std::uint64_t lost_ = 0;  // lines since the last that was written; likewise
};

}  // namespace ringd

#endif  // RINGD_DAEMON_LOGGING_LOG_FILE_H_
