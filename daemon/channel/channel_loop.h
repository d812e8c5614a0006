// The thread that reads channels and sends what their sockets did not take at once.
#ifndef RINGD_DAEMON_CHANNEL_CHANNEL_LOOP_H_
#define RINGD_DAEMON_CHANNEL_CHANNEL_LOOP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/sessions/isolated_executor.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"
#include "proto/base/waking_epoll.h"
#include "proto/channel/channel.h"

namespace ringd {

class Nudges;

// What happens on one channel. Called on the loop's thread, and must return soon.
struct ChannelEvents {
  std::function<void(ChannelFrame)> on_frame;
  // It has ended, by either side or for what the other side did wrong: its last event.
  std::function<void(const absl::Status&)> on_end;
};

// Each channel is read in turns, so that none keeps the others waiting.
//
// Thread safety: any thread, but the destructor.
// Ownership: shares the channels with their users until they have ended. What events use must live
//   until on_end was called, or the loop has gone.
class ChannelLoop {
 public:
  // `name`: of the thread. `isolated`: closes what the other sides may have sent or share, the
  // channels' own sockets too; it outlives the channels. Null: closing makes nobody here wait.
  //   What the kernel says.
  static absl::StatusOr<std::unique_ptr<ChannelLoop>> Start(const std::string& name,
                                                            IsolatedExecutor* isolated = nullptr);
  // Ends the thread and closes the channels that are open, which get no event any more. Nobody may
  // be in the middle of a Send.
  ~ChannelLoop();
  ChannelLoop(const ChannelLoop&) = delete;
  ChannelLoop& operator=(const ChannelLoop&) = delete;

  // `socket` is connected. From now on it is read.
  //   What the kernel says.
  absl::StatusOr<std::shared_ptr<Channel>> Add(UniqueFd socket, ChannelEvents events,
                                               ChannelLimits limits = {})
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Entry {
    std::shared_ptr<Channel> channel;
    ChannelEvents events;
  };

  ChannelLoop(WakingEpoll epoll, IsolatedExecutor* isolated);
  void Run();
  // `nudges`: null where closing makes nobody wait.
  void Serve(std::uint64_t key, std::uint32_t happened, Nudges* nudges);
  static absl::Status Read(const Entry& entry, Nudges* nudges);
  void Flush(std::uint64_t key, Channel& channel);
  // Asks for the socket's readiness.
  void Await(std::uint64_t key, int socket, bool writing) const noexcept;

  const WakingEpoll epoll_;  // woken by the destructor
  IsolatedExecutor* const isolated_;
  Mutex mutex_;
  std::uint64_t last_key_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, std::shared_ptr<Entry>> entries_ ABSL_GUARDED_BY(mutex_);

  // The thread's: channels whose descriptors have to wait, and until when.
  std::set<std::uint64_t> too_many_fds_;
  Clock::time_point try_again_at_;

  std::thread thread_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_CHANNEL_CHANNEL_LOOP_H_
