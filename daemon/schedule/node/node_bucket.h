// A learned bucket as one node sees it: which of its tensors are here, and for how long it has
// been waiting for the others.
//
// Thread safety: none.
// Invariant: at most one occurrence is running here, and none is filled completely but not started
//   unless the bucket is frozen or needs a launch.
#ifndef RINGD_DAEMON_SCHEDULE_NODE_NODE_BUCKET_H_
#define RINGD_DAEMON_SCHEDULE_NODE_NODE_BUCKET_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "daemon/schedule/node/node_scheduler.h"
#include "daemon/schedule/protocol/messages.h"
#include "daemon/schedule/protocol/schedule_time.h"

namespace ringd {

class NodeBucket {
 public:
  NodeBucket(const ScheduledBucket& scheduled, std::vector<TensorHandle> tensors);

  std::uint32_t channel() const { return channel_; }
  const TensorList& tensors() const { return tensors_; }
  const TensorMeta& meta(std::size_t position) const { return metas_[position]; }
  std::size_t bytes() const { return bytes_; }
  // An occurrence that is full starts when the coordinator launches it.
  bool needs_launch() const { return NeedsLaunch(metas_.front()); }

  std::uint32_t started() const { return started_; }
  std::size_t filled() const { return filled_; }
  bool full() const { return filled_ == tensors_->size(); }
  std::vector<TensorHandle> Missing() const;

  bool frozen() const { return frozen_; }
  bool break_sent() const { return break_sent_; }
  void Freeze() { frozen_ = true; }
  void MarkBreakSent() { break_sent_ = true; }

  // The tensor at `position` is ready, as scheduled.
  void Fill(std::size_t position, TimePoint now);
  // Starts the full occurrence and returns its number.
  std::uint32_t Start();

  // Why the bucket has to be given up now, if it has. `is_blocked` tells whether the ranks that
  // lack a tensor are blocked.
  std::optional<BreakReason> Overdue(TimePoint now, const NodeSchedulerConfig& config,
                                     const std::function<bool(TensorHandle)>& is_blocked);
  // Whether no occurrence has begun here for very long, in time and in steps, of which there have
  // been `steps`: its tensors are those of a model that is not trained any more. To be asked now
  // and then.
  bool IsOutOfUse(TimePoint now, std::uint64_t steps);
  // When Overdue has to be asked next; nullopt while nothing waits here.
  std::optional<TimePoint> NextCheck(const NodeSchedulerConfig& config) const;

 private:
  bool IsWaiting() const { return filled_ > 0 && !full() && !frozen_ && !break_sent_; }

  std::uint32_t channel_;
  TensorList tensors_;
  std::vector<TensorMeta> metas_;
  std::vector<bool> present_;
  std::size_t bytes_ = 0;
  std::size_t filled_ = 0;
  std::uint32_t started_ = 0;
  bool frozen_ = false;
  bool break_sent_ = false;

  std::chrono::nanoseconds usual_fill_;  // decays slowly, grows at once
  TimePoint fill_started_;
  TimePoint full_at_;
  std::optional<TimePoint> blocked_since_;
  std::optional<TimePoint> last_check_;

  // What IsOutOfUse saw when the bucket was in use.
  std::uint32_t used_started_ = 0;
  std::uint64_t used_step_ = 0;
  std::optional<TimePoint> used_at_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_NODE_NODE_BUCKET_H_
