// The wires' side, and the rank exchange's, of the supervisor's door.
#ifndef RINGD_DAEMON_ENGINE_PROCESS_REMOTE_WIRE_SOCKETS_H_
#define RINGD_DAEMON_ENGINE_PROCESS_REMOTE_WIRE_SOCKETS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/tcp/wire_sockets.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"
#include "proto/door/door_message.h"
#include "proto/rpc/engine_network.pb.h"

namespace ringd {

// What a RemoteWireSockets shares with the channel's thread: the wires that are open and events
// that nobody has taken.
//
// Thread safety: any thread. The lock is not held while a socket is closed.
// Ownership: owns the connections until they are taken.
class RemoteWires {
 public:
  using Event = WireSockets::Event;

  //   What the kernel says.
  static absl::StatusOr<std::shared_ptr<RemoteWires>> Create();

  int event_fd() const noexcept { return event_fd_.get(); }

  // `opening`: the number that its events have. `problem`: why nothing of it can be dialled, if
  // that is known already.
  void Open(std::uint64_t wire_id, std::uint64_t opening, absl::Status problem)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Closes what was not taken. False: it is not open.
  bool Close(std::uint64_t wire_id) ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<std::uint64_t> OpenWireIds() ABSL_LOCKS_EXCLUDED(mutex_);
  // True: the dial may be asked for. Else there is an event with the reason, if the wire is open.
  bool CheckDial(std::uint64_t wire_id, NodeIndex to, std::uint32_t stream)
      ABSL_LOCKS_EXCLUDED(mutex_);

  struct Taken {
    std::vector<Event> events;
    // By wire id: how many connections that others opened have come since the last call.
    std::map<std::uint64_t, std::uint32_t> arrivals;
  };
  Taken Take() ABSL_LOCKS_EXCLUDED(mutex_);

  // Of wires that are not open it is dropped. Of two connections of one stream that nobody has
  // taken the second counts: its dialler has not heard of the first one that it was let in.
  void OnEvent(const v1::EngineWireEvent& message, UniqueFd socket) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Wire {
    std::uint64_t opening = 0;
    absl::Status problem;
    std::uint32_t arrivals = 0;
  };

  explicit RemoteWires(UniqueFd event_fd) : event_fd_(std::move(event_fd)) {}
  void Add(Event event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const UniqueFd event_fd_;
  Mutex mutex_;
  std::map<std::uint64_t, Wire> wires_ ABSL_GUARDED_BY(mutex_);  // by wire id
  std::vector<Event> events_ ABSL_GUARDED_BY(mutex_);
};

// Thread safety: as WireSockets.
// Ownership: closes its wires when it goes.
class RemoteWireSockets final : public WireSockets {
 public:
  // Under way at a time; the others wait their turn. The supervisor bounds those of both purposes
  // (EngineNetwork::kMostWireDials), among them such as are being given up.
  static constexpr std::size_t kMostDials = 1024;

  using Send = std::function<void(v1::EngineNetworkRequest)>;

  // Its openings have numbers from `first_opening` on.
  RemoteWireSockets(DoorPurpose purpose, std::string local_address, Send send,
                    std::uint64_t first_opening, std::shared_ptr<RemoteWires> wires);
  ~RemoteWireSockets() override;

  const std::string& LocalAddress() const override { return local_address_; }
  int event_fd() const override { return wires_->event_fd(); }
  void Open(const WireMembership& membership) override;
  void Close(std::uint64_t wire_id) override;
  void Dial(std::uint64_t wire_id, NodeIndex to, std::uint32_t stream) override;
  std::vector<Event> Take() override;

 private:
  using DialKey = std::tuple<std::uint64_t, NodeIndex, std::uint32_t>;  // wire id, node, stream

  // Those whose turn it is.
  void SendDials();

  const DoorPurpose purpose_;
  const std::string local_address_;
  const Send send_;
  const std::shared_ptr<RemoteWires> wires_;
  // The progress thread's:
  std::uint64_t next_opening_;
  std::set<DialKey> dialling_;  // told to the supervisor, and not ended
  std::deque<DialKey> waiting_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_ENGINE_PROCESS_REMOTE_WIRE_SOCKETS_H_
