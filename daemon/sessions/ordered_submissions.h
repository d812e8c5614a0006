// A session's submissions on communicators that match by order: counted, and described by
// themselves.
#ifndef RINGD_DAEMON_SESSIONS_ORDERED_SUBMISSIONS_H_
#define RINGD_DAEMON_SESSIONS_ORDERED_SUBMISSIONS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/sessions/registration.h"
#include "proto/shm/ordered_operation.h"
#include "proto/shm/submission.h"
#include "proto/types/ids.h"

namespace ringd {

// Each submission in flight has a Registration of its own, whose name is its number ("operation
// 17"). They are kept and used again: there are as many as ever were in flight at once.
//
// Thread safety: none; the progress thread owns it.
// Trust: what a submission says is the client's; it is checked here.
class OrderedSubmissions {
 public:
  // The rank is one of the communicator's; `ranks` are all of them.
  void Open(CommunicatorId communicator, std::vector<std::int32_t> ranks);
  // No submission of it is accepted any more. What is in flight stays until its End.
  void Close(CommunicatorId communicator) { counts_.erase(communicator.value()); }

  // Checks all but the offsets, of which the session knows. Valid until End. `scales` mean nothing
  // if the record says that there are none.
  //   kInvalidArgument: the client broke the rules.
  absl::StatusOr<Registration*> Begin(const Submission& record, const OrderedScales& scales);
  // Counts it: it has passed all other checks as well.
  void Accept(const Registration& registration) noexcept;
  // Of one that Begin gave.
  void End(const Registration* registration) noexcept;

  // How many have been accepted of a communicator; 0: it is not open.
  std::uint64_t CountOf(CommunicatorId communicator) const noexcept;

 private:
  struct Use {
    std::uint64_t count = 0;
    std::vector<std::int32_t> ranks;
  };

  std::map<std::uint32_t, Use> counts_;  // by communicator
  std::deque<Registration> all_;
  std::vector<Registration*> free_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SESSIONS_ORDERED_SUBMISSIONS_H_
