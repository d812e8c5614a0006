// The wires that are open on this node: who may come in for them, and to whom he goes.
#ifndef RINGD_DAEMON_DOOR_OPEN_WIRES_H_
#define RINGD_DAEMON_DOOR_OPEN_WIRES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "backends/tcp/wire_sockets.h"
#include "daemon/door/dial.h"
#include "daemon/door/door_reception.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"
#include "proto/door/door_key.h"

namespace ringd {

// The door's reception for wires, or for exchanges.
//
// Thread safety: any thread. `deliver` is called on the door's thread, without a lock.
// Trust: who is let in has the wire's key, and so is the ringd of one of its nodes. That it dials
//   this node and comes from another one of the wire is checked. A node may come twice with the
//   same stream: if it did not hear in time that it was let in it tries again.
class OpenWires final : public DoorReception {
 public:
  // More streams between two nodes than any setting allows.
  static constexpr std::uint32_t kMostStreams = 64;

  // How many connections of all wires of one user have been delivered and not taken; shared by
  // those. Relaxed: a number.
  using UserUntaken = std::shared_ptr<std::atomic<std::size_t>>;
  static constexpr std::size_t kMostUntakenOfUser = 2048;

  // A connection that another node has opened.
  using Deliver = std::function<void(NodeIndex from, std::uint32_t stream, UniqueFd socket)>;

  // Of each wire at most `most_untaken` connections are delivered and not taken, and of all wires
  // of a user kMostUntakenOfUser, or a few more; who comes then is told to try later.
  OpenWires(DoorPurpose purpose, std::size_t most_untaken)
      : purpose_(purpose), most_untaken_(most_untaken) {}

  // `group` is for the wire's dials, and no other's. False: a wire of that id is open. Requirement:
  // `self` is a place among the addresses, of which there are as many as names.
  bool Open(const WireMembership& membership, const DoorKey& key, std::uint64_t group,
            UserUntaken of_user, Deliver deliver) ABSL_LOCKS_EXCLUDED(mutex_);
  // `deliver` may be under way. Requirement: it is open.
  void Close(std::uint64_t wire_id) ABSL_LOCKS_EXCLUDED(mutex_);
  // So many of those that were delivered have been taken. False: more than there are.
  bool Taken(std::uint64_t wire_id, std::size_t count) ABSL_LOCKS_EXCLUDED(mutex_);

  // Whom to dial, and with which key; flags, deadline and `done` are the caller's to fill in.
  // Requirement: it is open.
  //   kInvalidArgument: it has no other node `to`.
  absl::StatusOr<DialRequest> MakeRequest(std::uint64_t wire_id, NodeIndex to, std::uint32_t stream)
      ABSL_LOCKS_EXCLUDED(mutex_);

  void Consider(const DoorHello& hello, DoorConsideration& answer) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Admit(DoorArrival arrival) override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Wire {
    std::uint64_t group = 0;
    WireMembership membership;
    DoorKey key{};
    std::shared_ptr<const Deliver> deliver;
    UserUntaken of_user;
    std::size_t untaken = 0;
  };

  static void Take(Wire& wire, std::size_t count) noexcept;
  // Null unless the subject is a connection to this node from another of an open wire.
  Wire* Find(const WireSubject& subject) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const DoorPurpose purpose_;
  const std::size_t most_untaken_;

  Mutex mutex_;
  std::map<std::uint64_t, Wire> wires_ ABSL_GUARDED_BY(mutex_);  // by wire id
};

}  // namespace ringd

#endif  // RINGD_DAEMON_DOOR_OPEN_WIRES_H_
