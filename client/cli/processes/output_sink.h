// Writes to a stream of ringctl's own without ever being stuck in it.
#ifndef RINGD_CLIENT_CLI_PROCESSES_OUTPUT_SINK_H_
#define RINGD_CLIENT_CLI_PROCESSES_OUTPUT_SINK_H_

#include <functional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "proto/base/unique_fd.h"

namespace ringd::cli {

// The stream may be a pipe, or a terminal, whose reader is slow or has gone. The descriptor stays
// blocking, because others share it; so each write is one that does not block. A terminal, of which
// poll does not tell how much it takes, is opened once more.
//
// Thread safety: none.
// Ownership: borrows both descriptors.
class OutputSink {
 public:
  // `interrupt` becomes readable when the user wants an end; a write that waits then gives up. It
  // also gives up when `goes_on`, which it calls every now and then, says no.
  OutputSink(
      int fd, int interrupt, std::function<bool()> goes_on = [] { return true; });

  // Writes all of it, waiting for the reader as long as it takes. Once the reader has gone, the
  // disk is full, or a write has given up, this and everything later is dropped.
  void Write(absl::string_view bytes);

  // The reader has gone, or nothing can be written any more.
  bool broken() const noexcept { return broken_; }
  // Why, as errno: EPIPE, ENOSPC; 0: a write has given up, or it is not broken.
  int error() const noexcept { return error_; }

 private:
  // False: give up.
  bool WaitUntilWritable();
  // The same for a terminal that poll calls writable though it takes nothing.
  bool WaitAWhile();

  const UniqueFd terminal_;
  const int fd_;
  const int interrupt_;
  const std::function<bool()> goes_on_;
  bool broken_ = false;
  int error_ = 0;
};

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_PROCESSES_OUTPUT_SINK_H_
