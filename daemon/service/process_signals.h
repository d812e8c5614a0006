// The signals by which ringd is told to stop.
#ifndef RINGD_DAEMON_SERVICE_PROCESS_SIGNALS_H_
#define RINGD_DAEMON_SERVICE_PROCESS_SIGNALS_H_

#include <chrono>
#include <utility>

#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"

namespace ringd {

// SIGTERM, SIGINT and SIGHUP are taken from their usual ways and read here, by one thread, instead
// of interrupting any. SIGPIPE is ignored: writes report it.
//
// Thread safety: create it before the first thread starts, so that all inherit the blocked signals;
//   then one thread at a time.
class ProcessSignals {
 public:
  static absl::StatusOr<ProcessSignals> Take();

  // The next signal, or 0 after `timeout`.
  int Wait(std::chrono::milliseconds timeout) const;

 private:
  explicit ProcessSignals(UniqueFd fd) noexcept : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SERVICE_PROCESS_SIGNALS_H_
