// The end of one operation: a record of the CompletionRing. Written by ringd.
#ifndef RINGD_PROTO_SHM_COMPLETION_H_
#define RINGD_PROTO_SHM_COMPLETION_H_

#include <cstdint>

namespace ringd {

// Exactly one per accepted submission, in any order.
struct CompletionRecord {
  std::uint64_t sequence;  // of the submission
  std::uint64_t unused;    // 0
  std::int32_t status;     // an absl::StatusCode; 0 is success
  // Which ErrorTextSlot explains a status that is not 0, and the value of its `version` then; if
  // the slot has been reused since, the text is lost and only the code remains.
  std::uint32_t error_slot;
  std::uint32_t error_version;
  std::uint32_t reserved;
};
static_assert(sizeof(CompletionRecord) == 32);

}  // namespace ringd

#endif  // RINGD_PROTO_SHM_COMPLETION_H_
