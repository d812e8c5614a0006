#include "daemon/engine/link_switch.h"

#include <utility>
#include <vector>

namespace ringd {
namespace {

bool IsInside(LinkId link) { return (link.value() >> 63) != 0; }

}  // namespace

class LinkSwitch::InsideLink final : public CoordinatorLink {
 public:
  InsideLink(LinkSwitch* owner, LinkId id) : owner_(owner), id_(id) {}
  void Send(v1::NodeMessage message) override {
    owner_->inside_.push_back(Parcel{id_, std::move(message)});
  }

 private:
  LinkSwitch* owner_;
  LinkId id_;
};

class LinkSwitch::OutsideLink final : public CoordinatorLink {
 public:
  OutsideLink(PeerNetwork* network, StreamId stream) : network_(network), stream_(stream) {}
  void Send(v1::NodeMessage message) override { network_->Send(stream_, std::move(message)); }

 private:
  PeerNetwork* network_;
  StreamId stream_;
};

std::unique_ptr<CoordinatorLink> LinkSwitch::LinkInside(Job* job, JobCoordinator* coordinator) {
  const LinkId link(next_inside_++);
  jobs_[link] = job;
  coordinators_[link] = coordinator;
  return std::make_unique<InsideLink>(this, link);
}

std::unique_ptr<CoordinatorLink> LinkSwitch::LinkOutside(Job* job, CoordinatorAddress coordinator,
                                                         Clock::time_point deadline) {
  const StreamId stream = network_->ConnectToCoordinator(std::move(coordinator), deadline);
  jobs_[stream] = job;
  return std::make_unique<OutsideLink>(network_, stream);
}

void LinkSwitch::AddStranger(StreamId stream, Stranger stranger) {
  strangers_.emplace(stream, std::move(stranger));
}

LinkSwitch::Stranger* LinkSwitch::FindStranger(StreamId stream) {
  const auto found = strangers_.find(stream);
  return found == strangers_.end() ? nullptr : &found->second;
}

void LinkSwitch::Introduce(StreamId stream, JobCoordinator* coordinator) {
  strangers_.erase(stream);
  coordinators_[stream] = coordinator;
}

void LinkSwitch::TurnAway(StreamId stream, const absl::Status& reason) {
  v1::CoordinatorMessage message;
  message.mutable_failure()->set_code(static_cast<int>(reason.code()));
  message.mutable_failure()->set_text(std::string(reason.message()));
  network_->Send(stream, std::move(message));
  network_->Close(stream, reason);
  strangers_.erase(stream);
}

JobCoordinator* LinkSwitch::CoordinatorOf(LinkId link) const {
  const auto found = coordinators_.find(link);
  return found == coordinators_.end() ? nullptr : found->second;
}

JobCoordinator* LinkSwitch::CoordinatorOf(const Job& job) const {
  for (const auto& [link, owner] : jobs_) {
    if (owner == &job && IsInside(link)) return CoordinatorOf(link);
  }
  return nullptr;
}

Job* LinkSwitch::JobOf(LinkId link) const {
  const auto found = jobs_.find(link);
  return found == jobs_.end() ? nullptr : found->second;
}

void LinkSwitch::OnStreamEnded(LinkId link) {
  strangers_.erase(link);
  coordinators_.erase(link);
  jobs_.erase(link);
}

bool LinkSwitch::Deliver(Clock::time_point now) {
  const bool any = !inside_.empty();
  while (!inside_.empty()) {
    Parcel parcel = std::move(inside_.front());
    inside_.pop_front();
    if (auto* up = std::get_if<v1::NodeMessage>(&parcel.message)) {
      JobCoordinator* coordinator = CoordinatorOf(parcel.link);
      if (coordinator == nullptr) continue;
      if (up->body_case() == v1::NodeMessage::kHello) {
        coordinator->AddNode(parcel.link, up->hello(), now);
      } else {
        coordinator->OnMessage(parcel.link, std::move(*up), now);
      }
    } else if (Job* job = JobOf(parcel.link); job != nullptr) {
      job->OnCoordinatorMessage(std::get<v1::CoordinatorMessage>(std::move(parcel.message)), now);
    }
  }
  return any;
}

void LinkSwitch::Forget(const Job* job) {
  std::vector<LinkId> links;
  for (const auto& [link, owner] : jobs_) {
    if (owner == job) links.push_back(link);
  }
  for (const LinkId link : links) {
    jobs_.erase(link);
    if (IsInside(link)) {
      JobCoordinator* coordinator = CoordinatorOf(link);
      coordinators_.erase(link);
      if (coordinator != nullptr) {
        coordinator->OnLinkLost(link, absl::OkStatus());
      }
    } else {
      network_->Close(link, absl::OkStatus());
    }
  }
}

void LinkSwitch::Forget(const JobCoordinator* coordinator) {
  std::vector<LinkId> links;
  for (const auto& [link, owner] : coordinators_) {
    if (owner == coordinator) links.push_back(link);
  }
  for (const LinkId link : links) {
    coordinators_.erase(link);
    if (!IsInside(link)) network_->Close(link, absl::OkStatus());
  }
}

void LinkSwitch::SendToNode(LinkId link, v1::CoordinatorMessage message) {
  if (IsInside(link)) {
    inside_.push_back(Parcel{link, std::move(message)});
  } else {
    network_->Send(link, std::move(message));
  }
}

void LinkSwitch::CloseNode(LinkId link, const absl::Status& reason) {
  coordinators_.erase(link);
  if (!IsInside(link)) network_->Close(link, reason);
}

}  // namespace ringd
