#include "daemon/door/dial.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/door/door_bytes.h"
#include "daemon/door/door_socket.h"

namespace ringd {
namespace {

constexpr char kClosed[] = "it closed the connection";

// "4.2 s".
std::string Seconds(Clock::duration duration) {
  const auto tenths = std::chrono::round<std::chrono::duration<std::int64_t, std::deci>>(duration);
  return absl::StrCat(tenths.count() / 10, ".", tenths.count() % 10, " s");
}

}  // namespace

Dial::Dial(DialRequest request)
    : request_(std::move(request)),
      began_(Clock::now()),
      outcome_(absl::InternalError("it has not ended")) {}

std::string Dial::Whom() const {
  return absl::StrCat("ringd on ", request_.peer_name, " at ", request_.address);
}

Dial::Progress Dial::End(absl::StatusOr<DoorConnection> outcome) {
  outcome_ = std::move(outcome);
  socket_.Reset();
  return Progress::kEnded;
}

Dial::Progress Dial::TryLater(std::string why, Clock::time_point now) {
  socket_.Reset();
  dialler_.reset();
  if (now + pause_ >= request_.deadline) {
    return End(absl::DeadlineExceededError(
        absl::StrCat("no connection to ", Whom(), " in ", Seconds(now - began_), ": ", why)));
  }
  due_ = now + pause_;
  pause_ = std::min<Clock::duration>(2 * pause_, kLongestPause);
  cause_ = std::move(why);
  return Progress::kPausing;
}

Dial::Progress Dial::Begin(Clock::time_point now, absl::string_view own_name,
                           const CongestionControl& congestion_control) {
  connected_ = false;
  attempt_began_ = now;
  absl::StatusOr<UniqueFd> begun = BeginDoorConnection(request_.address, congestion_control);
  if (absl::IsInvalidArgument(begun.status())) {
    return End(absl::InvalidArgumentError(absl::StrCat(
        "no connection to ringd on ", request_.peer_name, ": ", begun.status().message())));
  }
  if (!begun.ok()) return TryLater(std::string(begun.status().message()), now);
  socket_ = *std::move(begun);
  dialler_.emplace(request_.key, DoorDialler::Intent{request_.purpose, request_.subject,
                                                     request_.flags, own_name});
  due_ = std::min<Clock::time_point>(now + kPatience, request_.deadline);
  return Progress::kConnecting;
}

Dial::Progress Dial::TimeOut(Clock::time_point now) {
  // An attempt for which there was hardly time says less than the one before.
  if (now - attempt_began_ < kPatience && !cause_.empty()) return TryLater(cause_, now);
  return TryLater(connected_ ? "it does not answer" : "it can't be reached", now);
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
      return TryLater("nobody there waits for this connection", now);
    case DoorVerdict::kFull:
      return TryLater("too many connections wait there", now);
    case DoorVerdict::kVersion:
      return End(absl::FailedPreconditionError(
          absl::StrCat(Whom(), " speaks door version ", dialler_->answerer().version, ", this one ",
                       kDoorVersion, ": install matching versions")));
    case DoorVerdict::kWelcome:
    case DoorVerdict::kWrongKey:
      break;
  }
  return End(absl::UnauthenticatedError(
      absl::StrCat(Whom(), " refuses the key of this node: ", DescribeDifference())));
}

std::string Dial::DescribeDifference() const {
  const bool here = (request_.flags & kDoorHasClusterKey) != 0;
  const bool there = (dialler_->answerer().flags & kDoorHasClusterKey) != 0;
  if (here && !there) return "it has no cluster key (cluster_key_file), this node has one";
  if (!here && there) return "it has a cluster key (cluster_key_file), this node has none";
  return absl::StrCat(
      here ? "the cluster keys (cluster_key_file) or the job's secrets " : "the job's secrets ",
      "(RINGD_JOB_SECRET) differ");
}

}  // namespace ringd
