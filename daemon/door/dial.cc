#include "daemon/door/dial.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "daemon/door/door_bytes.h"
#include "daemon/door/door_socket.h"
#include "proto/door/key_difference.h"

namespace ringd {
namespace {

constexpr char kClosed[] = "it closed the connection";
constexpr char kNotReached[] = "it can't be reached";

// What Debian's installer writes into /etc/hosts beside the host's own full name. A door on an
// interface is not there.
constexpr char kOwnNameOfDebian[] = "127.0.1.1:";
constexpr char kNameIsThisHost[] =
    "; /etc/hosts gives this host's own name that address: for rank 0's node say node_name, or the "
    "address of its peer_interface (MASTER_ADDR, RINGD_RENDEZVOUS)";

// What a door that is on another interface than the caller thinks looks like, too.
constexpr char kNobodyListens[] =
    "; no ringd listens at that address: it does not run, or serves its peer_interface alone, "
    "whose address ranks have to name then (of rank 0's node: MASTER_ADDR, RINGD_RENDEZVOUS), or "
    "another port (peer_address; ranks need RINGD_PEER_PORT then)";

// Also where a firewall answers in the host's place.
constexpr char kUnreachable[] =
    "; is that port open between the nodes (a firewall), and is the address that of rank 0's "
    "node's peer_interface?";

// "4.2 s".
std::string Seconds(Clock::duration duration) {
  const auto tenths = std::chrono::round<std::chrono::duration<std::int64_t, std::deci>>(duration);
  return absl::StrCat(tenths.count() / 10, ".", tenths.count() % 10, " s");
}

// Whether a connection has something to tell, now: that it has been made, say.
bool IsReady(int socket) noexcept {
  pollfd ready{socket, POLLIN | POLLOUT, 0};
  return ::poll(&ready, 1, 0) == 1;
}

}  // namespace

Dial::Dial(DialRequest request)
    : request_(std::move(request)),
      began_(Clock::now()),
      outcome_(absl::InternalError("it has not ended")) {}

std::string Dial::Whom() const {
  std::string name = request_.peer_name;
  if (name.empty() && dialler_.has_value()) name = ReadableName(dialler_->answerer().node_name);
  return name.empty() ? absl::StrCat("ringd at ", address())
                      : absl::StrCat("ringd on ", name, " at ", address());
}

std::string Dial::NobodyWaits() const {
  return request_.purpose == DoorPurpose::kControl
             ? "no rank of the job has joined there, where rank 0 should be"
             : "nobody there waits for this connection";
}

Dial::Progress Dial::End(absl::StatusOr<DoorConnection> outcome) {
  outcome_ = std::move(outcome);
  socket_.Reset();
  return Progress::kEnded;
}

const char* Dial::HintFor(absl::string_view why) const {
  if (absl::StartsWith(address(), kOwnNameOfDebian)) return kNameIsThisHost;
  if (absl::StrContains(why, std::strerror(ECONNREFUSED))) return kNobodyListens;
  const bool is_unreachable = why == kNotReached ||
                              absl::StrContains(why, std::strerror(EHOSTUNREACH)) ||
                              absl::StrContains(why, std::strerror(ENETUNREACH));
  return is_unreachable ? kUnreachable : "";
}

Dial::Progress Dial::TryLater(std::string why, Clock::time_point now) {
  socket_.Reset();
  if (now + pause_ >= request_.deadline) {
    return End(absl::DeadlineExceededError(absl::StrCat(
        "no connection to ", Whom(), " in ", Seconds(now - began_), ": ", why, HintFor(why))));
  }
  dialler_.reset();
  // Whom the other side has let wait need not wait here, too.
  if (now - attempt_began_ >= kLongestPause) pause_ = kFirstPause;
  due_ = now + pause_;
  pause_ = std::min<Clock::duration>(2 * pause_, kLongestPause);
  attempt_ = (attempt_ + 1) % request_.addresses.size();
  cause_ = std::move(why);
  return Progress::kPausing;
}

Dial::Progress Dial::Begin(Clock::time_point now, absl::string_view own_name,
                           const CongestionControl& congestion_control) {
  connected_ = false;
  own_name_ = std::string(own_name);
  attempt_began_ = now;
  absl::StatusOr<UniqueFd> begun = BeginDoorConnection(address(), congestion_control);
  if (absl::IsInvalidArgument(begun.status())) {
    return End(absl::InvalidArgumentError(
        absl::StrCat("no connection to ", Whom(), ": ", begun.status().message())));
  }
  if (!begun.ok()) return TryLater(std::string(begun.status().message()), now);
  socket_ = *std::move(begun);
  dialler_.emplace(request_.key, DoorDialler::Intent{request_.purpose, request_.subject,
                                                     request_.flags, own_name});
  due_ = std::min<Clock::time_point>(now + kPatience, request_.deadline);
  return Progress::kConnecting;
}

Dial::Progress Dial::TimeOut(Clock::time_point now) {
  // The answer may have come while this thread did not run; the other side counts on it.
  if (IsReady(socket_.get())) {
    if (const Progress progress = Advance(now); progress != Progress::kConnecting) return progress;
  }
  // An attempt for which there was hardly time says less than the one before.
  if (now - attempt_began_ < kPatience && !cause_.empty()) return TryLater(cause_, now);
  if (dialler_.has_value() && dialler_->challenged()) return TryLater(NobodyWaits(), now);
  // The same goes for the first one, if it has waited longer for its turn.
  const Clock::duration waited = attempt_began_ - began_;
  const Clock::duration tried = now - attempt_began_;
  if (cause_.empty() && tried < kPatience && tried < waited) return MissTurn(now);
  return TryLater(connected_ ? "it does not answer" : kNotReached, now);
}

Dial::Progress Dial::MissTurn(Clock::time_point now) {
  return End(absl::DeadlineExceededError(absl::StrCat(
      "no connection to ", Whom(), " in ", Seconds(now - began_), ": ", cause_,
      cause_.empty() ? "" : "; then ",
      "it waited for its turn, behind other connections that are being opened from here")));
}

Dial::Progress Dial::Advance(Clock::time_point now) {
  if (!connected_) {
    const absl::Status outcome = OutcomeOfDoorConnection(socket_.get());
    if (!outcome.ok()) return TryLater(std::string(outcome.message()), now);
    // Until it is connected sending says that it is not.
    connected_ = true;
  }
  return Drive(now);
}

Dial::Progress Dial::Drive(Clock::time_point now) {
  for (;;) {
    switch (SendOutgoing(socket_.get(), *dialler_)) {
      case DoorTransfer::kDone:
      case DoorTransfer::kBlocked:
        break;
      case DoorTransfer::kEnded:
      case DoorTransfer::kFailed:
        return TryLater(errno == EPIPE ? kClosed : std::strerror(errno), now);
    }
    switch (dialler_->state()) {
      case DoorState::kTalking:
      case DoorState::kAsked:
        break;
      case DoorState::kWelcome:
        return End(DoorConnection{std::move(socket_), dialler_->session_key(),
                                  ReadableName(dialler_->answerer().node_name)});
      case DoorState::kRefused:
        return OnRefusal(now);
      case DoorState::kBroken:
        return End(absl::UnauthenticatedError(
            absl::StrCat("no connection to ", Whom(), ": ", dialler_->trouble())));
    }
    switch (ReceiveOnce(socket_.get(), *dialler_)) {
      case DoorTransfer::kDone:
        break;
      case DoorTransfer::kBlocked:
        return Progress::kConnecting;
      case DoorTransfer::kEnded:
        return TryLater(kClosed, now);
      case DoorTransfer::kFailed:
        return TryLater(std::strerror(errno), now);
    }
  }
}

Dial::Progress Dial::OnRefusal(Clock::time_point now) {
  switch (dialler_->verdict()) {
    case DoorVerdict::kUnknownSubject:
      return TryLater(NobodyWaits(), now);
    case DoorVerdict::kFull:
      return TryLater("too many connections wait there", now);
    case DoorVerdict::kVersion:
      return End(absl::FailedPreconditionError(
          absl::StrCat(Whom(), " speaks door version ", dialler_->answerer().version, ", this one ",
                       kDoorVersion, ": install matching versions")));
    case DoorVerdict::kNoOtherNodes:
      return End(absl::FailedPreconditionError(absl::StrCat(
          Whom(), " has all ranks of the job that it knows by this id: it has one node")));
    case DoorVerdict::kDraining:
      return End(absl::UnavailableError(absl::StrCat(Whom(), " is draining")));
    case DoorVerdict::kOneself:
      return End(absl::AlreadyExistsError(absl::StrCat(address(), " is this ringd itself")));
    case DoorVerdict::kWelcome:
    case DoorVerdict::kWrongKey:
      break;
  }
  return End(absl::UnauthenticatedError(
      absl::StrCat(Whom(), " refuses the key of this node: ", DescribeDifference())));
}

std::string Dial::DescribeDifference() const {
  const std::string there = ReadableName(dialler_->answerer().node_name);
  return DescribeKeyDifference({own_name_, (request_.flags & kDoorHasClusterKey) != 0},
                               {there.empty() ? request_.peer_name : there,
                                (dialler_->answerer().flags & kDoorHasClusterKey) != 0});
}

}  // namespace ringd
