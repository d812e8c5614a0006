// The wires that are open on this node, and connections of theirs that nobody has taken yet.
#ifndef RINGD_DAEMON_DOOR_OPEN_WIRES_H_
#define RINGD_DAEMON_DOOR_OPEN_WIRES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "backends/tcp/wire_sockets.h"
#include "daemon/door/dial.h"
#include "daemon/door/door_reception.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"
#include "proto/door/door_key.h"

namespace ringd {

// What the door's thread and the progress thread share of a WireDoor.
//
// Thread safety: any thread. The lock is never held for long, nor while a socket is closed.
// Ownership: owns the connections until they are taken.
// Trust: who is let in has the wire's key, and so is the ringd of one of its nodes. That it dials
//   this node and comes from another one of the wire is checked. A node may come twice with the
//   same stream: if it did not hear in time that it was let in it tries again. Of those that nobody
//   has taken the last one counts.
class OpenWires final : public DoorReception {
 public:
  using Event = WireSockets::Event;

  // More streams between two nodes than any setting allows.
  static constexpr std::uint32_t kMostStreams = 64;

  // Of each wire at most `most_untaken` connections wait to be taken; who comes then is told to try
  // later.
  //   What the kernel says.
  static absl::StatusOr<std::shared_ptr<OpenWires>> Create(DoorPurpose purpose,
                                                           std::size_t most_untaken);

  // Readable when Take() has something.
  int event_fd() const noexcept { return event_fd_.get(); }

  // `group` is for the wire's dials, and no other's. Requirement: no wire of that id is open.
  void Open(const WireMembership& membership, std::uint64_t group) ABSL_LOCKS_EXCLUDED(mutex_);
  // Closes what was not taken. The group of its dials; nothing if it is not open.
  std::optional<std::uint64_t> Close(std::uint64_t wire_id) ABSL_LOCKS_EXCLUDED(mutex_);
  // The same, of all.
  std::vector<std::uint64_t> CloseAll() ABSL_LOCKS_EXCLUDED(mutex_);

  // Whom to dial, and with which key; flags, deadline and `done` are the caller's to fill in.
  // Nothing if that can't be done: then there is an event with the reason, if the wire is open.
  std::optional<DialRequest> MakeRequest(std::uint64_t wire_id, NodeIndex to, std::uint32_t stream)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // How a dial of that group has ended.
  void OnDialled(std::uint64_t group, Event event) ABSL_LOCKS_EXCLUDED(mutex_);

  std::vector<Event> Take() ABSL_LOCKS_EXCLUDED(mutex_);

  void Consider(const DoorHello& hello, DoorConsideration& answer) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Admit(DoorArrival arrival) override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Wire {
    std::uint64_t group = 0;  // of its dials: of this opening of it
    WireMembership membership;
    std::optional<DoorKey> key;  // none: the membership's has another length
    std::size_t untaken = 0;     // connections of others among events_
  };

  OpenWires(DoorPurpose purpose, std::size_t most_untaken, UniqueFd event_fd);

  // Null unless the subject is a connection to this node from another of an open wire.
  Wire* Find(const WireSubject& subject) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Add(Event event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const DoorPurpose purpose_;
  const std::size_t most_untaken_;
  const UniqueFd event_fd_;

  Mutex mutex_;
  std::map<std::uint64_t, Wire> wires_ ABSL_GUARDED_BY(mutex_);  // by wire id
  std::vector<Event> events_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringd

#endif  // RINGD_DAEMON_DOOR_OPEN_WIRES_H_
