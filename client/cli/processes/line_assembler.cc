#include "client/cli/processes/line_assembler.h"

#include "absl/strings/str_cat.h"

namespace ringd::cli {

void LineAssembler::Append(absl::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    if (end == absl::string_view::npos) {
      absl::StrAppend(&partial_, bytes);
      if (partial_.size() >= kMaxLineBytes) {
        absl::StrAppend(&out, prefix_, partial_, prefix_.empty() ? "" : "\n");
        partial_.clear();
      }
      return;
    }
    absl::StrAppend(&out, prefix_, partial_, bytes.substr(0, end + 1));
    partial_.clear();
    bytes.remove_prefix(end + 1);
  }
}

void LineAssembler::Finish(std::string& out) {
  if (partial_.empty()) return;
  absl::StrAppend(&out, prefix_, partial_, prefix_.empty() ? "" : "\n");
  partial_.clear();
}

}  // namespace ringd::cli
