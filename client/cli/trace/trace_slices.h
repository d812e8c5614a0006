// The two ways in which operations are told of: by an engine, and by ranks that are on one node.
#ifndef RINGD_CLIENT_CLI_TRACE_TRACE_SLICES_H_
#define RINGD_CLIENT_CLI_TRACE_TRACE_SLICES_H_

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>

#include "client/cli/trace/trace_timeline.h"

namespace ringd::cli {

// Which tensor a rank's submission was.
class SubmissionNames {
 public:
  void Add(std::uint8_t member, std::uint32_t submission, const std::string& name) {
    names_[std::uint64_t{member} << 32 | submission] = name;
  }
  // Empty: not known.
  std::string NameOf(std::uint8_t member, std::uint32_t submission) const {
    const auto found = names_.find(std::uint64_t{member} << 32 | submission);
    return found == names_.end() ? std::string() : found->second;
  }

 private:
  std::unordered_map<std::uint64_t, std::string> names_;
};

// From the node's engine's events. `processes`: its ringd, then its ranks. `end_ns`: when what has
// no end was seen last.
SubmissionNames AddEngineOperations(const RecordedNode& node, std::int64_t end_ns,
                                    std::span<TimelineProcess> processes);

// From the ranks' own events. `ranks`: their processes.
void AddLocalOperations(const RecordedNode& node, std::int64_t end_ns,
                        std::span<TimelineProcess> ranks);

// Appends a part that lasts from where the last one ended (at first the slice's beginning) until
// `end_ns`, unless that is no time.
void AddPart(TimelineSlice& slice, const char* name, std::int64_t end_ns);

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_TRACE_TRACE_SLICES_H_
