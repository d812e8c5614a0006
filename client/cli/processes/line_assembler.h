// Cuts a stream of bytes into whole lines with a prefix.
#ifndef RINGD_CLIENT_CLI_PROCESSES_LINE_ASSEMBLER_H_
#define RINGD_CLIENT_CLI_PROCESSES_LINE_ASSEMBLER_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace ringd::cli {

// Bytes other than '\n' are passed through as they are.
//
// Thread safety: none.
class LineAssembler {
 public:
  // A line longer than this is broken, so that a program that never ends its line can't take all
  // memory.
  static constexpr std::size_t kMaxLineBytes = std::size_t{1} << 20;

  explicit LineAssembler(std::string prefix) : prefix_(std::move(prefix)) {}

  // Takes `bytes` and appends the lines that are complete now, each with its prefix, to `out`.
  void Append(absl::string_view bytes, std::string& out);

  // The stream has ended: appends what is left. With a prefix it gets the line end it lacks.
  void Finish(std::string& out);

 private:
  const std::string prefix_;
  std::string partial_;
};

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_PROCESSES_LINE_ASSEMBLER_H_
