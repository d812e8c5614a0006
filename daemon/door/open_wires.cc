#include "daemon/door/open_wires.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "backends/tcp/wire_address.h"

namespace ringd {

bool OpenWires::Open(const WireMembership& membership, const DoorKey& key, std::uint64_t group,
                     UserUntaken of_user, Deliver deliver) {
  Wire wire{group,
            membership,
            key,
            std::make_shared<const Deliver>(std::move(deliver)),
            std::move(of_user),
            0};
  MutexLock lock(mutex_);
  return wires_.try_emplace(membership.wire_id, std::move(wire)).second;
}

void OpenWires::Close(std::uint64_t wire_id) {
  std::map<std::uint64_t, Wire>::node_type closed;  // goes without the lock
  MutexLock lock(mutex_);
  closed = wires_.extract(wire_id);
  Take(closed.mapped(), closed.mapped().untaken);
}

void OpenWires::Take(Wire& wire, std::size_t count) noexcept {
  wire.untaken -= count;
  wire.of_user->fetch_sub(count, std::memory_order_relaxed);
}

bool OpenWires::Taken(std::uint64_t wire_id, std::size_t count) {
  MutexLock lock(mutex_);
  const auto found = wires_.find(wire_id);
  if (found == wires_.end() || count > found->second.untaken) return false;
  Take(found->second, count);
  return true;
}

absl::StatusOr<DialRequest> OpenWires::MakeRequest(std::uint64_t wire_id, NodeIndex to,
                                                   std::uint32_t stream) {
  MutexLock lock(mutex_);
  const Wire& wire = wires_.at(wire_id);
  const WireMembership& membership = wire.membership;
  const auto place = static_cast<std::size_t>(to.value());
  if (to.value() < 0 || to == membership.self || place >= membership.addresses.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("node ", to.value(), " is none to which this one could connect"));
  }
  DialRequest request;
  request.group = wire.group;
  request.purpose = purpose_;
  request.subject = ToSubject({wire_id, static_cast<std::uint32_t>(membership.self.value()),
                               static_cast<std::uint32_t>(to.value()), stream});
  request.key = wire.key;
  request.addresses = {
      AddressForStream(membership.addresses[static_cast<std::size_t>(membership.self.value())],
                       membership.addresses[place], stream)};
  request.peer_name = membership.node_names[place];
  return request;
}

OpenWires::Wire* OpenWires::Find(const WireSubject& subject) {
  const auto found = wires_.find(subject.wire_id);
  if (found == wires_.end()) return nullptr;
  const WireMembership& membership = found->second.membership;
  const auto self = static_cast<std::uint32_t>(membership.self.value());
  const bool fits = subject.to == self && subject.from != self &&
                    subject.from < membership.addresses.size() && subject.stream < kMostStreams;
  return fits ? &found->second : nullptr;
}

void OpenWires::Consider(const DoorHello& hello, DoorConsideration& answer) {
  const std::optional<WireSubject> subject = ToWireSubject(hello.subject);
  if (!subject.has_value()) return;
  MutexLock lock(mutex_);
  const Wire* wire = Find(*subject);
  if (wire == nullptr) return;
  const bool full = wire->untaken >= most_untaken_ ||
                    wire->of_user->load(std::memory_order_relaxed) >= kMostUntakenOfUser;
  answer.verdict = full ? DoorVerdict::kFull : DoorVerdict::kWelcome;
  answer.keys.push_back(wire->key);
}

void OpenWires::Admit(DoorArrival arrival) {
  const std::optional<WireSubject> subject = ToWireSubject(arrival.hello.subject);
  if (!subject.has_value()) return;
  std::shared_ptr<const Deliver> deliver;
  {
    MutexLock lock(mutex_);
    Wire* wire = Find(*subject);
    // Another one of that id may have been opened since this one was considered.
    if (wire == nullptr || wire->key != arrival.key) return;
    ++wire->untaken;
    wire->of_user->fetch_add(1, std::memory_order_relaxed);
    deliver = wire->deliver;
  }
  (*deliver)(NodeIndex(static_cast<std::int32_t>(subject->from)), subject->stream,
             std::move(arrival.socket));
}

}  // namespace ringd
