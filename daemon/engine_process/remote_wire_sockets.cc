#include "daemon/engine_process/remote_wire_sockets.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "daemon/channel/engine_status.h"
#include "proto/base/errno_status.h"
#include "proto/door/hmac.h"

namespace ringd {
namespace {

absl::Status CheckMembership(const WireMembership& membership) {
  if (membership.key.size() != kSha256Bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the wire's key has ", membership.key.size(), " bytes, not ", kSha256Bytes));
  }
  const std::size_t nodes = membership.addresses.size();
  const int self = membership.self.value();
  if (self < 0 || static_cast<std::size_t>(self) >= nodes ||
      membership.node_names.size() != nodes) {
    return absl::InvalidArgumentError(absl::StrCat("this node is no. ", self, " of a wire with ",
                                                   nodes, " addresses and ",
                                                   membership.node_names.size(), " names"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<RemoteWires>> RemoteWires::Create() {
  UniqueFd event_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event_fd.valid()) return ErrnoStatus(errno, "eventfd");
  return std::shared_ptr<RemoteWires>(new RemoteWires(std::move(event_fd)));
}

void RemoteWires::Open(std::uint64_t wire_id, std::uint64_t opening, absl::Status problem) {
  MutexLock lock(mutex_);
  wires_.insert_or_assign(wire_id, Wire{opening, std::move(problem), 0});
}

bool RemoteWires::Close(std::uint64_t wire_id) {
  std::vector<Event> dropped;  // their sockets are closed when the lock is free again
  MutexLock lock(mutex_);
  const auto found = wires_.find(wire_id);
  if (found == wires_.end()) return false;
  wires_.erase(found);
  const auto rest =
      std::stable_partition(events_.begin(), events_.end(),
                            [wire_id](const Event& event) { return event.wire_id != wire_id; });
  std::move(rest, events_.end(), std::back_inserter(dropped));
  events_.erase(rest, events_.end());
  return true;
}

std::vector<std::uint64_t> RemoteWires::OpenWireIds() {
  std::vector<std::uint64_t> ids;
  MutexLock lock(mutex_);
  for (const auto& [wire_id, wire] : wires_) ids.push_back(wire_id);
  return ids;
}

bool RemoteWires::CheckDial(std::uint64_t wire_id, NodeIndex to, std::uint32_t stream) {
  MutexLock lock(mutex_);
  const auto found = wires_.find(wire_id);
  if (found == wires_.end()) return false;
  if (found->second.problem.ok()) return true;
  Add({wire_id, to, stream, true, found->second.problem, {}});
  return false;
}

RemoteWires::Taken RemoteWires::Take() {
  Taken taken;
  MutexLock lock(mutex_);
  std::uint64_t count = 0;
  static_cast<void>(!::read(event_fd_.get(), &count, sizeof(count)));
  std::swap(taken.events, events_);
  for (auto& [wire_id, wire] : wires_) {
    if (wire.arrivals != 0) taken.arrivals[wire_id] = std::exchange(wire.arrivals, 0);
  }
  return taken;
}

void RemoteWires::OnEvent(const v1::EngineWireEvent& message, UniqueFd socket) {
  Event event{message.wire_id(),      NodeIndex(message.node()),    message.stream(),
              message.dialled_here(), ReadStatus(message.status()), {}};
  if (event.status.ok() && !socket.valid()) return;
  MutexLock lock(mutex_);
  const auto found = wires_.find(event.wire_id);
  // It was closed meanwhile, and perhaps opened again.
  if (found == wires_.end() || found->second.opening != message.opening()) return;
  if (!event.dialled_here && event.status.ok()) {
    ++found->second.arrivals;
    const auto before = std::find_if(events_.begin(), events_.end(), [&](const Event& waiting) {
      return waiting.wire_id == event.wire_id && waiting.node == event.node &&
             waiting.stream == event.stream && !waiting.dialled_here;
    });
    if (before != events_.end()) return std::swap(before->socket, socket);
  }
  event.socket = std::move(socket);
  Add(std::move(event));
}

void RemoteWires::Add(Event event) {
  events_.push_back(std::move(event));
  const std::uint64_t one = 1;
  static_cast<void>(!::write(event_fd_.get(), &one, sizeof(one)));
}

RemoteWireSockets::RemoteWireSockets(DoorPurpose purpose, std::string local_address, Send send,
                                     std::uint64_t first_opening,
                                     std::shared_ptr<RemoteWires> wires)
    : purpose_(purpose),
      local_address_(std::move(local_address)),
      send_(std::move(send)),
      wires_(std::move(wires)),
      next_opening_(first_opening) {}

RemoteWireSockets::~RemoteWireSockets() {
  for (const std::uint64_t wire_id : wires_->OpenWireIds()) Close(wire_id);
}

void RemoteWireSockets::Open(const WireMembership& membership) {
  const absl::Status problem = CheckMembership(membership);
  const std::uint64_t opening = next_opening_++;
  wires_->Open(membership.wire_id, opening, problem);
  if (!problem.ok()) return;
  v1::EngineNetworkRequest request;
  v1::EngineWireOpen& open = *request.mutable_wire_open();
  open.set_purpose(static_cast<std::uint32_t>(purpose_));
  open.set_wire_id(membership.wire_id);
  open.set_opening(opening);
  open.set_self(membership.self.value());
  open.set_key(membership.key);
  for (const std::string& address : membership.addresses) open.add_addresses(address);
  for (const std::string& name : membership.node_names) open.add_node_names(name);
  send_(std::move(request));
}

void RemoteWireSockets::Close(std::uint64_t wire_id) {
  if (!wires_->Close(wire_id)) return;
  const auto is_of_it = [wire_id](const DialKey& dial) { return std::get<0>(dial) == wire_id; };
  std::erase_if(dialling_, is_of_it);
  std::erase_if(waiting_, is_of_it);
  v1::EngineNetworkRequest request;
  v1::EngineWireClose& close = *request.mutable_wire_close();
  close.set_purpose(static_cast<std::uint32_t>(purpose_));
  close.set_wire_id(wire_id);
  send_(std::move(request));
  SendDials();
}

void RemoteWireSockets::Dial(std::uint64_t wire_id, NodeIndex to, std::uint32_t stream) {
  if (!wires_->CheckDial(wire_id, to, stream)) return;
  waiting_.emplace_back(wire_id, to, stream);
  SendDials();
}

void RemoteWireSockets::SendDials() {
  while (!waiting_.empty() && dialling_.size() < kMostDials) {
    const auto [wire_id, to, stream] = waiting_.front();
    dialling_.insert(waiting_.front());
    waiting_.pop_front();
    v1::EngineNetworkRequest request;
    v1::EngineWireDial& dial = *request.mutable_wire_dial();
    dial.set_purpose(static_cast<std::uint32_t>(purpose_));
    dial.set_wire_id(wire_id);
    dial.set_to(to.value());
    dial.set_stream(stream);
    send_(std::move(request));
  }
}

std::vector<WireSockets::Event> RemoteWireSockets::Take() {
  RemoteWires::Taken taken = wires_->Take();
  for (const auto& [wire_id, count] : taken.arrivals) {
    v1::EngineNetworkRequest request;
    v1::EngineWireTaken& told = *request.mutable_wire_taken();
    told.set_purpose(static_cast<std::uint32_t>(purpose_));
    told.set_wire_id(wire_id);
    told.set_count(count);
    send_(std::move(request));
  }
  for (const Event& event : taken.events) {
    if (event.dialled_here) dialling_.erase({event.wire_id, event.node, event.stream});
  }
  SendDials();
  return std::move(taken.events);
}

}  // namespace ringd
