// The thread that reads channels and sends what their sockets did not take at once.
#ifndef RINGD_DAEMON_CHANNEL_CHANNEL_LOOP_H_
#define RINGD_DAEMON_CHANNEL_CHANNEL_LOOP_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

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
  // Takes room for a frame of so many bytes, more than kSmallFrame, before it is read; the frame
  // brings it along. Null: there is none now. Then the other side has to wait, and this is asked
  // again soon. No function: there is always room.
  std::function<std::shared_ptr<const void>(std::size_t)> room = nullptr;
  // Whose the channel is, a number of 63 bits: those of one flow have their turns one after the
  // other. No function: it is a flow by itself.
  std::function<std::uint64_t()> flow = nullptr;
};

// Channels are read in turns, one of each flow in each round: a flow that always has something to
// say, by however many channels, keeps the others waiting for kTurn at a time, or for as long as
// one frame takes.
//
// Thread safety: any thread, but the destructor.
// Ownership: shares the channels with their users until they have ended. What events use must live
//   until on_end was called, or the loop has gone.
class ChannelLoop {
 public:
  // After so much time, or so many bytes, it is the next one's turn.
  static constexpr std::chrono::milliseconds kTurn{1};
  static constexpr std::size_t kTurnBytes = std::size_t{256} << 10;
  // Such frames need no room.
  static constexpr std::size_t kSmallFrame = std::size_t{1} << 10;
  // How long the kernel may refuse to send descriptors before the log says so.
  static constexpr std::chrono::seconds kRefusalPatience{1};

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
  // What epoll is asked for, by whoever sends, too: always what is so at the moment.
  struct Interest {
    // Whether that is a change.
    bool Set(bool value) ABSL_LOCKS_EXCLUDED(mutex) {
      const MutexLock lock(mutex);
      return std::exchange(reads, value) != value;
    }

    Mutex mutex;
    bool reads ABSL_GUARDED_BY(mutex) = true;  // false: what comes waits for room
  };
  struct Entry {
    std::shared_ptr<Channel> channel;
    ChannelEvents events;
    const std::shared_ptr<Interest> interest = std::make_shared<Interest>();
    // The thread's.
    std::shared_ptr<const void> room;  // for the frame that comes next
    // Since when the kernel has taken no descriptors, until that is told.
    std::optional<Clock::time_point> refused_since;
  };
  enum class Turn { kDone, kMore, kNoRoom };
  using Happened = std::map<std::uint64_t, std::uint32_t>;  // epoll's events by channel

  ChannelLoop(WakingEpoll epoll, IsolatedExecutor* isolated);
  void Run();
  // One turn of each flow; the others of its channels are for the next round.
  void ServeRound(const Happened& round, Nudges* nudges) ABSL_LOCKS_EXCLUDED(mutex_);
  // `nudges`: null where closing makes nobody wait.
  void Serve(std::uint64_t key, Entry& entry, std::uint32_t happened, Nudges* nudges)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // One turn of a channel. `hung_up`: little more can come, for which there is room. Errors as
  // Channel::Read.
  static absl::StatusOr<Turn> Read(Entry& entry, bool hung_up, Nudges* nudges);
  static absl::StatusOr<std::size_t> Receive(Channel& channel, Nudges* nudges);
  static bool HasRoom(Entry& entry);
  void Flush(std::uint64_t key, Entry& entry);
  static void TellOfRefusal(Entry& entry);
  // Asks for the socket's readiness.
  void Await(std::uint64_t key, int socket, Interest& interest, bool writing) const noexcept;
  // Of all that it waits for now.
  void AwaitAnew(std::uint64_t key, const Entry& entry) const;
  // Looks at it again in a moment, for these events.
  void Pause(std::uint64_t key, std::uint32_t events);

  const WakingEpoll epoll_;  // woken by the destructor
  IsolatedExecutor* const isolated_;
  Mutex mutex_;
  std::uint64_t last_key_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, std::shared_ptr<Entry>> entries_ ABSL_GUARDED_BY(mutex_);

  // The thread's: channels that had no turn yet or had more to say than one takes; and those that
  // wait, for room or for the kernel to take descriptors, with the events that are tried again.
  Happened unfinished_;
  Happened paused_;
  Clock::time_point try_again_at_;
  // Of flows of which more than one waits: whose turn was the last one.
  std::map<std::uint64_t, std::uint64_t> last_turns_;

  std::thread thread_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_CHANNEL_CHANNEL_LOOP_H_
