// Who is behind the door: each purpose of connections has an owner that knows the keys and takes
// who is let in.
#ifndef RINGD_DAEMON_DOOR_DOOR_RECEPTION_H_
#define RINGD_DAEMON_DOOR_DOOR_RECEPTION_H_

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"
#include "proto/door/door_key.h"
#include "proto/door/door_message.h"

namespace ringd {

// Somebody who has proved to have a key.
struct DoorArrival {
  DoorHello hello;
  DoorKey key{};  // the one of the keys that it has
  DoorKey session_key{};
  UniqueFd socket;   // non-blocking; nothing behind the handshake has been read
  std::string from;  // "node-b at 10.0.0.2 port 40001": the name by its own word
};

// What a reception says of a Hello.
struct DoorConsideration {
  // kWelcome: whoever has one of `keys` may come in. kUnknownSubject: nobody waits for it yet, so
  // that it may wait a little (Door::Reconsider). Else the refusal.
  DoorVerdict verdict = DoorVerdict::kUnknownSubject;
  std::vector<DoorKey> keys;
  DoorVerdict otherwise = DoorVerdict::kWrongKey;  // what it hears if it has none of them
};

// Thread safety: called on the door's thread; must return soon.
class DoorReception {
 public:
  virtual ~DoorReception() = default;

  // Asked when a stranger has said what it wants and before it is believed, perhaps several times.
  // `answer` is as made. No keys may be given for what this node itself dials
  // (proto/door/README.md, Reflection).
  virtual void Consider(const DoorHello& hello, DoorConsideration& answer) = 0;

  // It was considered and has been refused, or had none of the keys. All that is known of it is its
  // own word.
  virtual void OnRefused(const DoorHello& /*hello*/, DoorVerdict /*verdict*/,
                         const std::string& /*from*/) {}

  // It has come in. What was considered may have ended meanwhile: then drop it.
  virtual void Admit(DoorArrival arrival) = 0;
};

// Which there are.
//
// Thread safety: any thread.
// Ownership: shared; one that was removed may be in the middle of a call, which it outlives.
class DoorReceptions {
 public:
  // In place of the one before.
  void Set(DoorPurpose purpose, std::shared_ptr<DoorReception> reception)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    receptions_.at(PlaceOf(purpose)) = std::move(reception);
  }
  // Unless another one has taken its place.
  void Remove(DoorPurpose purpose, const DoorReception* reception) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    std::shared_ptr<DoorReception>& present = receptions_.at(PlaceOf(purpose));
    if (present.get() == reception) present.reset();
  }
  // Null if there is none, and for every number that is no purpose.
  std::shared_ptr<DoorReception> Get(DoorPurpose purpose) ABSL_LOCKS_EXCLUDED(mutex_) {
    const std::size_t place = PlaceOf(purpose);
    MutexLock lock(mutex_);
    return place < receptions_.size() ? receptions_[place] : nullptr;
  }

 private:
  static constexpr std::size_t PlaceOf(DoorPurpose purpose) noexcept {
    return static_cast<std::size_t>(purpose) - static_cast<std::size_t>(DoorPurpose::kControl);
  }

  Mutex mutex_;
  std::array<std::shared_ptr<DoorReception>, 3> receptions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringd

#endif  // RINGD_DAEMON_DOOR_DOOR_RECEPTION_H_
