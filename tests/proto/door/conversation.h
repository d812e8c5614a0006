// Both sides of a handshake in one thread, with somebody between them who may change what passes.
#ifndef RINGD_TESTS_PROTO_DOOR_CONVERSATION_H_
#define RINGD_TESTS_PROTO_DOOR_CONVERSATION_H_

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "proto/door/door_handshake.h"

namespace ringd {

using DoorBytes = std::vector<std::byte>;

inline DoorKey KeyOf(absl::string_view secret) {
  return KeyForControl(JobKey("", "job", secret, 1000));
}
inline DoorSubject SubjectOfJob() { return ToSubject(ControlSubject{JobTag("job"), 1000}); }

inline DoorDialler::Intent ControlIntent() {
  return {DoorPurpose::kControl, SubjectOfJob(), kDoorHasJobSecret, "node-a"};
}

// Takes all that `side` has to send, `at_most` bytes of it.
template <typename Side>
DoorBytes TakeOutgoing(Side& side, std::size_t at_most = SIZE_MAX) {
  const std::span<const std::byte> out = side.outgoing();
  DoorBytes bytes(out.begin(),
                  out.begin() + static_cast<std::ptrdiff_t>(std::min(out.size(), at_most)));
  side.Sent(bytes.size());
  return bytes;
}

// Gives `side` what it has room for, `at_most` bytes at a time; how many it took.
template <typename Side>
std::size_t Give(Side& side, std::span<const std::byte> bytes, std::size_t at_most = SIZE_MAX) {
  std::size_t given = 0;
  while (given < bytes.size() && !side.room().empty()) {
    const std::span<std::byte> room = side.room();
    const std::size_t count = std::min({room.size(), bytes.size() - given, at_most});
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(given), count, room.begin());
    side.Received(count);
    given += count;
  }
  return given;
}

struct Conversation {
  DoorDialler dialler;
  DoorAnswerer answerer;
  std::vector<DoorKey> keys;  // the answerer's
  // May change what passes: a whole message, or what there is of one.
  std::function<void(DoorBytes&)> to_answerer = [](DoorBytes&) {};
  std::function<void(DoorBytes&)> to_dialler = [](DoorBytes&) {};
  std::size_t at_most = SIZE_MAX;  // bytes that pass at once

  // Until nothing moves any more.
  void Run() {
    for (bool moved = true; moved;) {
      moved = false;
      if (answerer.state() == DoorState::kAsked) answerer.Decide(keys, DoorVerdict::kWrongKey);
      DoorBytes bytes = TakeOutgoing(dialler, at_most);
      moved |= !bytes.empty();
      to_answerer(bytes);
      Give(answerer, bytes, at_most);
      if (answerer.state() == DoorState::kAsked) answerer.Decide(keys, DoorVerdict::kWrongKey);
      bytes = TakeOutgoing(answerer, at_most);
      moved |= !bytes.empty();
      to_dialler(bytes);
      Give(dialler, bytes, at_most);
    }
  }
};

inline Conversation Talk(absl::string_view dialler_secret, absl::string_view answerer_secret) {
  return {DoorDialler(KeyOf(dialler_secret), ControlIntent()),
          DoorAnswerer(kDoorHasClusterKey, "node-b"),
          {KeyOf(answerer_secret)}};
}

}  // namespace ringd

#endif  // RINGD_TESTS_PROTO_DOOR_CONVERSATION_H_
