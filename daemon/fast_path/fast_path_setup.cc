#include "daemon/fast_path/fast_path_setup.h"

#include <sys/poll.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/fast_path/fast_path_socket.h"

namespace ringd {
namespace {

// Whoever guesses must not learn from the time how much was right.
bool IsToken(const std::string& token, const std::byte (&shown)[kFastPathTokenBytes]) {
  if (token.size() != kFastPathTokenBytes) return false;
  unsigned differences = 0;
  for (std::size_t i = 0; i < kFastPathTokenBytes; ++i) {
    differences |= static_cast<unsigned char>(token[i]) ^ static_cast<unsigned char>(shown[i]);
  }
  return differences == 0;
}

}  // namespace

FastPathSetup::FastPathSetup(FastPathPlan plan, FastPathListener* listener, LogFields fields,
                             Clock::time_point now)
    : plan_(std::move(plan)),
      listener_(listener),
      fields_(fields),
      began_(now),
      connections_(plan_.node_names.size()) {
  if (is_root()) return;
  absl::StatusOr<UniqueFd> begun =
      BeginFastPathConnection(plan_.root_address, listener_->congestion_control());
  if (!begun.ok()) {
    Fail(0, begun.status().message());
    return;
  }
  connections_[0] = *std::move(begun);
  listener_->Watch(connections_[0].get(), /*writable=*/true);
}

FastPathSetup::~FastPathSetup() { CloseAll(); }

void FastPathSetup::CloseAll() {
  for (UniqueFd& connection : connections_) {
    listener_->Unwatch(connection.get());
    connection.Reset();
  }
}

void FastPathSetup::Fail(std::uint32_t node, absl::string_view what) {
  state_ = State::kFailed;
  failure_ = absl::UnavailableError(absl::StrCat(plan_.node_names[node], ": ", what));
  CloseAll();
}

Clock::time_point FastPathSetup::Deadline() const noexcept {
  return began_ + kPatience + (is_root() ? std::chrono::milliseconds(0) : kGrace);
}

std::string FastPathSetup::DescribeMissing() const {
  std::vector<std::string> missing;
  for (std::size_t node = 1; node < connections_.size(); ++node) {
    if (!connections_[node].valid()) missing.push_back(plan_.node_names[node]);
  }
  return absl::StrJoin(missing, ", ");
}

FastPathSetup::State FastPathSetup::Advance(Clock::time_point now) {
  if (state_ != State::kPending) return state_;
  if (is_root()) {
    Gather();
  } else if (!greeted_) {
    Connect();
  }
  if (state_ == State::kPending && greeted_) AwaitOpen();
  if (state_ != State::kPending || now < Deadline()) return state_;
  const auto patience =
      std::chrono::duration_cast<std::chrono::milliseconds>(Deadline() - began_).count();
  if (is_root()) {
    const std::string missing = DescribeMissing();
    Fail(0, absl::StrCat("no connection came from ", missing, " within ", patience, " ms"));
  } else {
    Fail(0, absl::StrCat("at ", plan_.root_address,
                         greeted_ ? " it did not open the fast path" : " it does not answer",
                         " within ", patience, " ms"));
  }
  return state_;
}

absl::Status FastPathSetup::AddArrival(FastPathListener::Arrival& arrival) {
  if (!IsToken(plan_.token, arrival.hello.token)) {
    return absl::UnauthenticatedError("it does not know the job's token");
  }
  const std::uint32_t node = arrival.hello.node_index;
  if (node == 0 || node >= connections_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the job has no other node ", node));
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
  CheckGathered();
  if (state_ == State::kPending && DescribeMissing().empty()) OpenAll();
}

void FastPathSetup::CheckGathered() {
  for (std::uint32_t node = 1; node < connections_.size(); ++node) {
    if (!connections_[node].valid()) continue;
    if (absl::Status status = CheckSilent(connections_[node].get()); !status.ok()) {
      Fail(node, status.message());
      return;
    }
  }
}

void FastPathSetup::OpenAll() {
  constexpr FastPathOpen kOpen{kFastPathMessageMagic, kFastPathWireVersion};
  for (std::uint32_t node = 1; node < connections_.size(); ++node) {
    if (absl::Status status =
            SendWhole(connections_[node].get(), std::as_bytes(std::span(&kOpen, 1)));
        !status.ok()) {
      // Those that have heard it find their connections closed.
      Fail(node, status.message());
      return;
    }
  }
  state_ = State::kOpen;
}

void FastPathSetup::Connect() {
  const int fd = connections_[0].get();
  pollfd writable{fd, POLLOUT, 0};
  if (::poll(&writable, 1, 0) <= 0) return;
  if (absl::Status status = OutcomeOfConnecting(fd); !status.ok()) {
    Fail(0, absl::StrCat("at ", plan_.root_address, ", ", status.message()));
    return;
  }
  FastPathHello hello{};
  hello.magic = kFastPathMessageMagic;
  hello.version = kFastPathWireVersion;
  hello.wire_id = plan_.wire_id;
  hello.node_index = plan_.self;
  std::memcpy(hello.token, plan_.token.data(), std::min(plan_.token.size(), kFastPathTokenBytes));
  if (absl::Status status = SendWhole(fd, std::as_bytes(std::span(&hello, 1))); !status.ok()) {
    Fail(0, status.message());
    return;
  }
  greeted_ = true;
  listener_->Watch(fd, /*writable=*/false);
}

void FastPathSetup::AwaitOpen() {
  const absl::Status status =
      ReceiveSome(connections_[0].get(), std::as_writable_bytes(std::span(&open_, 1)), filled_);
  if (!status.ok()) {
    Fail(0, absl::StrCat(status.message(), " before it opened the fast path"));
    return;
  }
  if (filled_ < sizeof(open_)) return;
  if (open_.magic != kFastPathMessageMagic || open_.version != kFastPathWireVersion) {
    Fail(0, "it answered with what makes no sense");
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
