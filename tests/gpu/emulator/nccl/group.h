// ncclGroupStart and ncclGroupEnd: what a thread calls in between happens at the end, together.
#ifndef RINGD_TESTS_GPU_EMULATOR_NCCL_GROUP_H_
#define RINGD_TESTS_GPU_EMULATOR_NCCL_GROUP_H_

#include <memory>

#include "tests/gpu/emulator/nccl/communicator.h"

namespace ringd::emulator {

// Thread safety: each thread has a group of its own, which may be nested.
class Group {
 public:
  enum class Work {
    kMeeting,  // waits for other ranks, which may be other threads or later calls of this group
    kLaunch,   // puts something on a stream
  };

  static void Begin();
  // At the outermost end runs all that was submitted.
  //   kNcclInvalidUsage: there was no Begin.  kNcclInProgress: its communicators do not block.
  //   Else the first error of a call in the group, and nothing has been run; or of running.
  static NcclResult End();

  // Runs `job` by communicator.Start, now or at the end of the group.
  static NcclResult Submit(const std::shared_ptr<Communicator>& communicator, Work work, Job job);

  // Remembers an error of a call inside of a group; returns it.
  static NcclResult Note(NcclResult result);
};

}  // namespace ringd::emulator

#endif  // RINGD_TESTS_GPU_EMULATOR_NCCL_GROUP_H_
