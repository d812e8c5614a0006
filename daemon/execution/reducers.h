// What the progress thread and reducer threads agree on: work in parts, and who is told of it.
#ifndef RINGD_DAEMON_EXECUTION_REDUCERS_H_
#define RINGD_DAEMON_EXECUTION_REDUCERS_H_

#include <cstddef>
#include <memory>
#include <optional>

namespace ringd {

// Work of which anybody may take parts.
//
// Thread safety: any number of threads at once. Who has claimed a part finishes it soon.
class ReducerWork {
 public:
  virtual ~ReducerWork() = default;

  // A part that nobody else does; null if there is none to begin.
  virtual std::optional<std::size_t> Claim() noexcept = 0;
  virtual void Finish(std::size_t part) noexcept = 0;
  // When there was none: whether there may be some later, of which Reducers::Tell() tells.
  virtual bool MayGrow() const noexcept { return false; }
};

// Who does it.
//
// Thread safety: Offer, Tell and Withdraw on the progress thread, WakeEngine on any.
class Reducers {
 public:
  virtual ~Reducers() = default;

  // Begins it at some time, or never.
  virtual void Offer(std::shared_ptr<ReducerWork> work) = 0;
  // What was offered has grown by more than whoever is at it now may want. Cheap if nobody sleeps.
  virtual void Tell() noexcept = 0;
  // Forgets it, though parts of it may still be claimed by whom is at it.
  virtual void Withdraw(const ReducerWork& work) = 0;

  // For a part that the engine has asked for in vain.
  virtual void WakeEngine() noexcept = 0;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_EXECUTION_REDUCERS_H_
