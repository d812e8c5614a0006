// Who must have ended before the exit handlers of CUDA's and NCCL's libraries run.
#ifndef RINGD_CLIENT_CORE_LANES_DEVICE_EXIT_ORDER_H_
#define RINGD_CLIENT_CORE_LANES_DEVICE_EXIT_ORDER_H_

namespace ringd::client {

// Has a thread that uses those libraries, or for which their streams wait.
class EndsBeforeLibraries {
 public:
  // In an exit handler, and perhaps while another thread does the same.
  virtual void EndBeforeLibraries() = 0;

 protected:
  ~EndsBeforeLibraries() = default;
};

// Exit handlers run in the reverse order of their registration. A child after fork() has nothing to
// end.
//
// Thread safety: any thread may call anything.
class ExitOrder {
 public:
  // From now on a process that exits ends it first, until Forget has returned.
  static void Add(EndsBeforeLibraries* ending);
  static void Forget(EndsBeforeLibraries* ending);
  // Libraries have been loaded: what they have registered comes after ours.
  static void GoFirst();
  // A thread does not come back from a call of a library's: the process ends by _exit, with its own
  // exit code, when all else has been done.
  static void LeaveThreadBehind() noexcept;
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_LANES_DEVICE_EXIT_ORDER_H_
