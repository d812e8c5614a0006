#include "daemon/fast_path/fast_path_setup.h"

#include <sys/poll.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/fast_path/fast_path_socket.h"
#include "proto/door/hmac.h"

namespace ringd {

FastPathSetup::FastPathSetup(FastPathPlan plan, FastPathListener* listener, LogFields fields,
                             Clock::time_point now)
    : plan_(std::move(plan)),
      listener_(listener),
      fields_(fields),
      began_(now),
      connections_(plan_.node_names.size()) {
  const auto node_count = static_cast<std::uint32_t>(connections_.size());
  for (FastPathNodeSet left = NeighboursOf(plan_.self, node_count, plan_.knomial); left != 0;) {
    const std::uint32_t node = TakeLowest(left);
    (node < plan_.self ? parents_ : children_) |= NodeBit(node);
  }
  for (FastPathNodeSet left = parents_; left != 0;) {
    if (!BeginConnecting(TakeLowest(left))) return;
  }
}

bool FastPathSetup::BeginConnecting(std::uint32_t parent) {
  absl::StatusOr<UniqueFd> begun =
      BeginFastPathConnection(plan_.addresses[parent], listener_->congestion_control());
  if (!begun.ok()) {
    FailFor(parent, begun.status().message());
    return false;
  }
  connections_[parent] = *std::move(begun);
  listener_->Watch(connections_[parent].get(), /*writable=*/true);
  return true;
}

FastPathSetup::~FastPathSetup() { CloseAll(); }

void FastPathSetup::CloseAll() {
  for (UniqueFd& connection : connections_) {
    listener_->Unwatch(connection.get());
    connection.Reset();
  }
}

void FastPathSetup::Fail(absl::string_view why) {
  state_ = State::kFailed;
  failure_ = absl::UnavailableError(why);
  CloseAll();
}

void FastPathSetup::FailFor(std::uint32_t node, absl::string_view what) {
  Fail(absl::StrCat(plan_.node_names[node], ": ", what));
}

Clock::time_point FastPathSetup::Deadline() const noexcept {
  return began_ + kPatience + (is_root() ? std::chrono::milliseconds(0) : kGrace);
}

FastPathNodeSet FastPathSetup::Missing() const noexcept {
  FastPathNodeSet missing = 0;
  for (FastPathNodeSet left = children_; left != 0;) {
    const std::uint32_t node = TakeLowest(left);
    if (!connections_[node].valid()) missing |= NodeBit(node);
  }
  return missing;
}

std::string FastPathSetup::DescribeMissing() const {
  std::vector<std::string> names;
  for (FastPathNodeSet left = Missing(); left != 0;) {
    names.push_back(plan_.node_names[TakeLowest(left)]);
  }
  return absl::StrJoin(names, ", ");
}

FastPathSetup::State FastPathSetup::Advance(Clock::time_point now) {
  constexpr FastPathNodeSet kRoot = NodeBit(0);
  if (state_ != State::kPending) return state_;
  Gather();
  for (FastPathNodeSet left = parents_ & ~connected_; left != 0 && state_ == State::kPending;) {
    FinishConnecting(TakeLowest(left));
  }
  for (FastPathNodeSet left = connected_ & ~greeted_ & ~kRoot;
       left != 0 && state_ == State::kPending;) {
    Greet(TakeLowest(left));
  }
  if (state_ == State::kPending) CheckSilence();
  if (state_ != State::kPending) return state_;
  const bool is_ready = (parents_ & ~greeted_ & ~kRoot) == 0 && Missing() == 0;
  if (is_ready && is_root()) {
    OpenAll();
  } else if (is_ready && !reported() && (connected_ & kRoot) != 0) {
    Greet(0);
  }
  if (state_ == State::kPending && reported()) AwaitOpen();
  if (state_ == State::kPending && now >= Deadline()) FailForTime();
  return state_;
}

void FastPathSetup::FailForTime() {
  const auto patience =
      std::chrono::duration_cast<std::chrono::milliseconds>(Deadline() - began_).count();
  if (Missing() != 0) {
    Fail(absl::StrCat("no connection came from ", DescribeMissing(), " within ", patience, " ms"));
    return;
  }
  FastPathNodeSet unconnected = parents_ & ~connected_;
  const std::uint32_t parent = unconnected == 0 ? 0 : TakeLowest(unconnected);
  FailFor(parent,
          absl::StrCat("at ", plan_.addresses[parent],
                       reported() ? " it did not open the fast path" : " it does not answer",
                       " within ", patience, " ms"));
}

absl::Status FastPathSetup::AddArrival(FastPathListener::Arrival& arrival) {
  const absl::string_view shown(reinterpret_cast<const char*>(arrival.hello.token),
                                kFastPathTokenBytes);
  if (!EqualInConstantTime(shown, plan_.token)) {
    return absl::UnauthenticatedError("it does not know the job's token");
  }
  const std::uint32_t node = arrival.hello.node_index;
  if (node >= connections_.size() || (children_ & NodeBit(node)) == 0) {
    return absl::InvalidArgumentError(absl::StrCat("no node ", node, " of the job connects here"));
  }
  if (connections_[node].valid()) {
    return absl::AlreadyExistsError(absl::StrCat(plan_.node_names[node], " has come before"));
  }
  connections_[node] = std::move(arrival.connection);
  listener_->Watch(connections_[node].get(), /*writable=*/false);
  return absl::OkStatus();
}

void FastPathSetup::Gather() {
  for (FastPathListener::Arrival& arrival : listener_->TakeArrivals(plan_.wire_id)) {
    // It ends that connection alone: the right one may still come.
    if (absl::Status status = AddArrival(arrival); !status.ok()) {
      LogWarning(absl::StrCat("a connection to the fast path from ", arrival.from,
                              " was closed: ", status.message()),
                 fields_);
    }
  }
}

void FastPathSetup::CheckSilence() {
  FastPathNodeSet others = children_ | connected_;
  // The root's answer is taken in by AwaitOpen.
  if (reported()) others &= ~NodeBit(0);
  while (others != 0) {
    const std::uint32_t node = TakeLowest(others);
    if (!connections_[node].valid()) continue;
    const absl::Status status = CheckSilent(connections_[node].get());
    // As soon as the root knows of all, the ranks of other nodes may begin.
    if (status.ok()) continue;
    if (reported() && absl::IsInvalidArgument(status)) {
      // What they have said stays there, and would wake the engine for as long.
      listener_->Unwatch(connections_[node].get());
      continue;
    }
    FailFor(node, status.message());
    return;
  }
}

void FastPathSetup::OpenAll() {
  constexpr FastPathOpen kOpen{kFastPathMessageMagic, kFastPathWireVersion};
  for (std::uint32_t node = 1; node < connections_.size(); ++node) {
    if (absl::Status status =
            SendWhole(connections_[node].get(), std::as_bytes(std::span(&kOpen, 1)));
        !status.ok()) {
      // Those that have heard it find their connections closed.
      FailFor(node, status.message());
      return;
    }
  }
  state_ = State::kOpen;
}

void FastPathSetup::FinishConnecting(std::uint32_t parent) {
  const int fd = connections_[parent].get();
  pollfd writable{fd, POLLOUT, 0};
  if (::poll(&writable, 1, 0) <= 0) return;
  if (absl::Status status = OutcomeOfConnecting(fd); !status.ok()) {
    FailFor(parent, absl::StrCat("at ", plan_.addresses[parent], ", ", status.message()));
    return;
  }
  connected_ |= NodeBit(parent);
  listener_->Watch(fd, /*writable=*/false);
}

void FastPathSetup::Greet(std::uint32_t parent) {
  FastPathHello hello{};
  hello.magic = kFastPathMessageMagic;
  hello.version = kFastPathWireVersion;
  hello.wire_id = plan_.wire_id;
  hello.node_index = plan_.self;
  std::memcpy(hello.token, plan_.token.data(), std::min(plan_.token.size(), kFastPathTokenBytes));
  if (absl::Status status =
          SendWhole(connections_[parent].get(), std::as_bytes(std::span(&hello, 1)));
      !status.ok()) {
    FailFor(parent, status.message());
    return;
  }
  greeted_ |= NodeBit(parent);
}

void FastPathSetup::AwaitOpen() {
  const absl::Status status =
      ReceiveSome(connections_[0].get(), std::as_writable_bytes(std::span(&open_, 1)), filled_);
  if (!status.ok()) {
    FailFor(0, absl::StrCat(status.message(), " before it opened the fast path"));
    return;
  }
  if (filled_ < sizeof(open_)) return;
  if (open_.magic != kFastPathMessageMagic || open_.version != kFastPathWireVersion) {
    FailFor(0, "it answered with what makes no sense");
    return;
  }
  state_ = State::kOpen;
}

std::vector<UniqueFd> FastPathSetup::TakeConnections() {
  std::vector<UniqueFd> taken(connections_.size());
  for (std::size_t node = 0; node < connections_.size(); ++node) {
    if (!connections_[node].valid()) continue;
    listener_->Unwatch(connections_[node].get());
    HandOverFastPathSocket(connections_[node].get());
    taken[node] = std::move(connections_[node]);
  }
  return taken;
}

}  // namespace ringd
