#include "daemon/peers/coordinator_dial.h"

#include <algorithm>
#include <utility>

#include "proto/door/door_message.h"

namespace ringd {

CoordinatorDial::CoordinatorDial(Door* door, NameResolver* resolver, CoordinatorAddress coordinator,
                                 std::uint32_t flags, Clock::time_point deadline, Done done)
    : door_(door),
      resolver_(resolver),
      coordinator_(std::move(coordinator)),
      flags_(flags),
      deadline_(deadline),
      done_(std::move(done)),
      group_(door->NewGroup()) {}

void CoordinatorDial::Begin() {
  absl::StatusOr<HostPort> address = ParseHostPort(coordinator_.host_port);
  if (!address.ok()) return End(address.status());
  address_ = *std::move(address);
  Look();
}

void CoordinatorDial::Abandon() {
  ended_ = true;
  door_->Abandon(group_);
}

void CoordinatorDial::Look() {
  resolver_->Resolve(coordinator_.uid, address_, deadline_,
                     [self = shared_from_this()](auto addresses) {
                       if (self->ended_) return;
                       if (!addresses.ok()) return self->End(addresses.status());
                       self->Dial(*std::move(addresses));
                     });
}

void CoordinatorDial::Dial(std::vector<std::string> addresses) {
  const bool is_name = addresses.size() != 1 || addresses.front() != FormatHostPort(address_);
  DialRequest request;
  request.group = group_;
  request.user = coordinator_.uid;
  request.purpose = DoorPurpose::kControl;
  request.subject = ToSubject(
      ControlSubject{JobTag(coordinator_.job_id), static_cast<uint32_t>(coordinator_.uid)});
  request.key = coordinator_.key;
  request.flags = flags_ | (coordinator_.has_secret ? kDoorHasJobSecret : 0);
  request.addresses = std::move(addresses);
  request.deadline =
      is_name ? std::min<Clock::time_point>(deadline_, Clock::now() + kRound) : deadline_;
  request.done = [self = shared_from_this()](absl::StatusOr<DoorConnection> outcome) {
    self->OnDialled(std::move(outcome));
  };
  door_->Dial(std::move(request));
}

void CoordinatorDial::OnDialled(absl::StatusOr<DoorConnection> outcome) {
  if (ended_) return;
  if (absl::IsDeadlineExceeded(outcome.status()) && Clock::now() + kPause < deadline_) {
    return Look();
  }
  End(std::move(outcome));
}

void CoordinatorDial::End(absl::StatusOr<DoorConnection> outcome) {
  if (!ended_.exchange(true)) done_(std::move(outcome));
}

}  // namespace ringd
