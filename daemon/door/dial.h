// Connecting to another ringd's door: tries again until it succeeds, is refused for good, or its
// time is over.
#ifndef RINGD_DAEMON_DOOR_DIAL_H_
#define RINGD_DAEMON_DOOR_DIAL_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/congestion_control.h"
#include "proto/base/clock.h"
#include "proto/base/unique_fd.h"
#include "proto/door/door_handshake.h"

namespace ringd {

// A connection on which both sides have proved that they have the key.
struct DoorConnection {
  UniqueFd socket;  // non-blocking; nothing behind the handshake has been read
  DoorKey session_key{};
  std::string node_name;  // the answerer's, by its own word
};

struct DialRequest {
  std::uint64_t group = 0;  // Door::NewGroup; Door::Abandon ends all of it
  uid_t user = 0;           // whose turn it takes
  DoorPurpose purpose{};
  DoorSubject subject{};
  DoorKey key{};
  std::uint32_t flags = 0;  // as in a Hello
  // host:port with a numeric host, of one door: each attempt takes the next one. Not empty.
  std::vector<std::string> addresses;
  std::string peer_name;  // whose door it is, for messages; empty: not known
  Clock::time_point deadline;
  // Called once, on the door's thread, unless it was abandoned or the door was stopped before; must
  // return soon.
  //   kDeadlineExceeded: the last cause is in the message. kUnauthenticated: the keys differ, or it
  //   has none. kFailedPrecondition: another version, or no ringd. kInvalidArgument: the address is
  //   none.
  //   kUnavailable: the other one takes no new jobs. kAlreadyExists: it is this very door.
  // All name node and address.
  std::function<void(absl::StatusOr<DoorConnection>)> done;
};

// One of them. Between attempts it has no socket.
//
// Thread safety: none; the door's thread owns it.
class Dial {
 public:
  // What a refused or broken attempt is followed by, doubled each time.
  static constexpr std::chrono::milliseconds kFirstPause{20};
  static constexpr std::chrono::milliseconds kLongestPause{1000};
  // Of one attempt.
  static constexpr std::chrono::seconds kPatience{5};

  enum class Progress : std::uint8_t {
    kPausing,     // until due()
    kConnecting,  // socket() tells more, until due()
    kEnded,       // take outcome()
  };

  explicit Dial(DialRequest request);

  // Begins an attempt. Its socket, if there is one, is to be watched for reading and writing.
  Progress Begin(Clock::time_point now, absl::string_view own_name,
                 const CongestionControl& congestion_control);
  // Call it when the socket tells something.
  Progress Advance(Clock::time_point now);
  // Call it at due() while connecting.
  Progress TimeOut(Clock::time_point now);
  // Call it if its deadline has come before its turn.
  Progress MissTurn(Clock::time_point now);

  const DialRequest& request() const noexcept { return request_; }
  bool HasNonce(const DoorNonce& nonce) const noexcept {
    return dialler_.has_value() && dialler_->nonce() == nonce;
  }
  int socket() const noexcept { return socket_.get(); }
  Clock::time_point due() const noexcept { return due_; }
  absl::StatusOr<DoorConnection> TakeOutcome() { return std::move(outcome_); }

 private:
  Progress Drive(Clock::time_point now);
  Progress OnRefusal(Clock::time_point now);
  Progress TryLater(std::string why, Clock::time_point now);
  Progress End(absl::StatusOr<DoorConnection> outcome);
  const std::string& address() const noexcept { return request_.addresses[attempt_]; }
  // "ringd on node-b at 10.0.0.2:7117".
  std::string Whom() const;
  std::string NobodyWaits() const;
  // What to do about it, as the end of a sentence; empty: nothing is known.
  const char* HintFor(absl::string_view why) const;
  std::string DescribeDifference() const;

  DialRequest request_;
  std::size_t attempt_ = 0;  // to which of the addresses
  UniqueFd socket_;
  std::optional<DoorDialler> dialler_;  // of the attempt under way
  bool connected_ = false;
  Clock::time_point due_;
  Clock::duration pause_ = kFirstPause;
  std::string cause_;  // of the last attempt's end
  std::string own_name_;
  Clock::time_point attempt_began_;
  const Clock::time_point began_;
  absl::StatusOr<DoorConnection> outcome_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_DOOR_DIAL_H_
