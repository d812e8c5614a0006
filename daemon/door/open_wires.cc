#include "daemon/door/open_wires.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "backends/tcp/wire_address.h"
#include "proto/base/errno_status.h"

namespace ringd {
namespace {

// What is wrong with dialling `to`; OK if nothing is.
absl::Status CheckDial(const WireMembership& membership, bool has_key, NodeIndex to) {
  const auto place = static_cast<std::size_t>(to.value());
  const auto own_place = static_cast<std::size_t>(membership.self.value());
  if (to.value() < 0 || own_place >= membership.addresses.size() || to == membership.self ||
      place >= membership.addresses.size() || place >= membership.node_names.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("node ", to.value(), " is none to which this one could connect"));
  }
  if (!has_key) {
    return absl::InvalidArgumentError(
        absl::StrCat("the wire's key has ", membership.key.size(), " bytes, not ", kSha256Bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<OpenWires>> OpenWires::Create(DoorPurpose purpose,
                                                             std::size_t most_untaken) {
  UniqueFd event_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event_fd.valid()) return ErrnoStatus(errno, "eventfd");
  return std::shared_ptr<OpenWires>(new OpenWires(purpose, most_untaken, std::move(event_fd)));
}

OpenWires::OpenWires(DoorPurpose purpose, std::size_t most_untaken, UniqueFd event_fd)
    : purpose_(purpose), most_untaken_(most_untaken), event_fd_(std::move(event_fd)) {}

void OpenWires::Open(const WireMembership& membership, std::uint64_t group) {
  Wire wire;
  wire.group = group;
  wire.membership = membership;
  if (membership.key.size() == kSha256Bytes) {
    wire.key.emplace();
    std::memcpy(wire.key->data(), membership.key.data(), wire.key->size());
  }
  MutexLock lock(mutex_);
  wires_.insert_or_assign(membership.wire_id, std::move(wire));
}

std::optional<std::uint64_t> OpenWires::Close(std::uint64_t wire_id) {
  std::vector<Event> dropped;  // their sockets are closed when the lock is free again
  MutexLock lock(mutex_);
  const auto found = wires_.find(wire_id);
  if (found == wires_.end()) return std::nullopt;
  const std::uint64_t group = found->second.group;
  wires_.erase(found);
  const auto rest =
      std::stable_partition(events_.begin(), events_.end(),
                            [wire_id](const Event& event) { return event.wire_id != wire_id; });
  std::move(rest, events_.end(), std::back_inserter(dropped));
  events_.erase(rest, events_.end());
  return group;
}

std::vector<std::uint64_t> OpenWires::CloseAll() {
  std::vector<Event> dropped;  // as above
  std::vector<std::uint64_t> groups;
  MutexLock lock(mutex_);
  for (const auto& [wire_id, wire] : wires_) groups.push_back(wire.group);
  wires_.clear();
  std::swap(dropped, events_);
  return groups;
}

std::optional<DialRequest> OpenWires::MakeRequest(std::uint64_t wire_id, NodeIndex to,
                                                  std::uint32_t stream) {
  MutexLock lock(mutex_);
  const auto found = wires_.find(wire_id);
  if (found == wires_.end()) return std::nullopt;
  const Wire& wire = found->second;
  const WireMembership& membership = wire.membership;
  absl::Status status = CheckDial(membership, wire.key.has_value(), to);
  if (!status.ok()) {
    Add({wire_id, to, stream, true, std::move(status), {}});
    return std::nullopt;
  }
  const auto place = static_cast<std::size_t>(to.value());
  DialRequest request;
  request.group = wire.group;
  request.purpose = purpose_;
  request.subject = ToSubject({wire_id, static_cast<std::uint32_t>(membership.self.value()),
                               static_cast<std::uint32_t>(to.value()), stream});
  request.key = *wire.key;
  request.addresses = {
      AddressForStream(membership.addresses[static_cast<std::size_t>(membership.self.value())],
                       membership.addresses[place], stream)};
  request.peer_name = membership.node_names[place];
  return request;
}

void OpenWires::OnDialled(std::uint64_t group, Event event) {
  MutexLock lock(mutex_);
  const auto found = wires_.find(event.wire_id);
  // It was closed meanwhile, and perhaps opened again.
  if (found == wires_.end() || found->second.group != group) return;
  Add(std::move(event));
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
  if (wire == nullptr || !wire->key.has_value()) return;
  answer.verdict = wire->untaken >= most_untaken_ ? DoorVerdict::kFull : DoorVerdict::kWelcome;
  answer.keys.push_back(*wire->key);
}

void OpenWires::Admit(DoorArrival arrival) {
  const std::optional<WireSubject> subject = ToWireSubject(arrival.hello.subject);
  if (!subject.has_value()) return;
  const NodeIndex from(static_cast<std::int32_t>(subject->from));
  UniqueFd replaced;  // closed when the lock is free again
  MutexLock lock(mutex_);
  Wire* wire = Find(*subject);
  if (wire == nullptr) return;
  const auto before = std::find_if(events_.begin(), events_.end(), [&](const Event& event) {
    return event.wire_id == subject->wire_id && event.node == from &&
           event.stream == subject->stream && !event.dialled_here;
  });
  if (before != events_.end()) {
    replaced = std::exchange(before->socket, std::move(arrival.socket));
    return;
  }
  ++wire->untaken;
  Add({subject->wire_id, from, subject->stream, false, absl::OkStatus(),
       std::move(arrival.socket)});
}

void OpenWires::Add(Event event) {
  events_.push_back(std::move(event));
  const std::uint64_t one = 1;
  static_cast<void>(!::write(event_fd_.get(), &one, sizeof(one)));
}

std::vector<OpenWires::Event> OpenWires::Take() {
  std::vector<Event> taken;
  MutexLock lock(mutex_);
  std::uint64_t count = 0;
  static_cast<void>(!::read(event_fd_.get(), &count, sizeof(count)));
  std::swap(taken, events_);
  for (auto& [wire_id, wire] : wires_) wire.untaken = 0;
  return taken;
}

}  // namespace ringd
