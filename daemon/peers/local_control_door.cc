#include "daemon/peers/local_control_door.h"

#include <string>
#include <utility>

namespace ringd {

LocalControlDoor::LocalControlDoor(Door* door, std::uint32_t door_flags)
    : door_(door),
      door_flags_(door_flags),
      expected_(std::make_shared<ExpectedJobs>(ExpectedJobs::Handlers{
          [this](ExpectationId job, uid_t user, DoorArrival arrival) {
            handlers_.admitted(job, user, std::move(arrival.from), std::move(arrival.socket));
          },
          [this](ExpectationId job, const RefusedNode& node) { handlers_.refused(job, node); }})) {}

void LocalControlDoor::Start(Handlers handlers) {
  handlers_ = std::move(handlers);
  door_->SetReception(DoorPurpose::kControl, expected_);
}

LocalControlDoor::~LocalControlDoor() {
  door_->RemoveReception(DoorPurpose::kControl, expected_.get());
}

void LocalControlDoor::RefuseNewJobs(bool refuse) {
  expected_->SetDraining(refuse);
  door_->Reconsider();
}

ExpectationId LocalControlDoor::Expect(ExpectedJob job) {
  const ExpectationId id = expected_->Add(std::move(job));
  door_->Reconsider();
  return id;
}

void LocalControlDoor::Dial(DialId id, CoordinatorAddress coordinator, Clock::time_point deadline,
                            DialDone done) {
  const auto dial = std::make_shared<CoordinatorDial>(
      door_, &resolver_, std::move(coordinator), door_flags_, deadline,
      [this, id, done = std::move(done)](absl::StatusOr<DoorConnection> outcome) {
        Forget(id);
        if (outcome.ok()) {
          done(std::move(outcome->socket));
        } else {
          done(outcome.status());
        }
      });
  {
    MutexLock lock(mutex_);
    dials_.emplace(id, dial);
  }
  dial->Begin();
}

void LocalControlDoor::Abandon(DialId id) {
  if (const auto dial = Forget(id)) dial->Abandon();
}

std::shared_ptr<CoordinatorDial> LocalControlDoor::Forget(DialId id) {
  MutexLock lock(mutex_);
  const auto found = dials_.find(id);
  if (found == dials_.end()) return nullptr;
  std::shared_ptr<CoordinatorDial> dial = std::move(found->second);
  dials_.erase(found);
  return dial;
}

}  // namespace ringd
