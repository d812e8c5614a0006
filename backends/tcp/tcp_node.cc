#include "backends/tcp/tcp_node.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/collectives/wire_spec.h"
#include "backends/tcp/tcp_transport.h"
#include "backends/tcp/tcp_wire.h"
#include "backends/tcp/wire_address.h"
#include "proto/base/errno_status.h"

namespace ringd {

absl::StatusOr<std::unique_ptr<Transport>> CreateTcpTransport(
    const TransportOptions& options, std::unique_ptr<WireSockets> sockets) {
  return TcpNode::Create(options, std::move(sockets));
}

absl::StatusOr<std::unique_ptr<Transport>> TcpNode::Create(const TransportOptions& options,
                                                           std::unique_ptr<WireSockets> sockets) {
  const int streams = options.streams_per_neighbour;
  if (streams < 0 || streams > static_cast<int>(TcpLine::kMaxStreams)) {
    return absl::InvalidArgumentError(absl::StrCat("streams per neighbour must be 1 to ",
                                                   TcpLine::kMaxStreams, ", not ", streams));
  }
  absl::StatusOr<CongestionControl> control = ChooseCongestionControl(options.congestion_control);
  if (!control.ok()) return control.status();
  std::unique_ptr<TcpNode> node(
      new TcpNode(std::move(sockets), streams, *std::move(control), options.line_shares));
  if (absl::Status status = node->Listen(); !status.ok()) return status;
  return node;
}

TcpNode::TcpNode(std::unique_ptr<WireSockets> sockets, int bulk_streams,
                 CongestionControl congestion_control, LineShares* line_shares)
    : sockets_(std::move(sockets)),
      bulk_streams_(bulk_streams),
      line_shares_(line_shares),
      means_{poller_, send_pool_, std::move(congestion_control)},
      timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {}

absl::Status TcpNode::Listen() {
  if (!poller_.valid() || !timer_.valid()) {
    return ErrnoStatus(errno, "opening the descriptors of the TCP backend");
  }
  if (absl::Status status = poller_.Watch(timer_.get(), timer_bell_); !status.ok()) return status;
  return poller_.Watch(sockets_->event_fd(), sockets_bell_);
}

absl::StatusOr<std::unique_ptr<Communicator>> TcpNode::CreateCommunicator(
    const CommunicatorSpec& spec) {
  if (absl::Status status = CheckSpec(spec, &IsWireAddress, "TCP"); !status.ok()) return status;
  if (ends_.contains(spec.wire_id)) {
    return absl::AlreadyExistsError("this job's generation is open already");
  }
  auto wire = std::make_unique<TcpWire>(*this, spec);
  TcpWire* const borrowed_wire = wire.get();
  auto communicator = std::make_unique<WireCommunicator>(spec, std::move(wire), early_pool_, busy_);
  ends_[spec.wire_id] = {borrowed_wire, communicator.get()};
  sockets_->Open({spec.wire_id, spec.self, spec.key, spec.addresses, spec.node_names});
  borrowed_wire->Start(*communicator, RingNeighbours(spec));
  return communicator;
}

std::uint32_t TcpNode::BulkStreams(absl::string_view own, absl::string_view peer) const {
  return static_cast<std::uint32_t>(bulk_streams_ == kAutoStreams ? CommonInterfaces(own, peer)
                                                                  : bulk_streams_);
}

TcpRemote& TcpNode::RemoteAt(const std::string& address) {
  std::unique_ptr<TcpRemote>& remote = remotes_[address];
  if (remote == nullptr) {
    remote = std::make_unique<TcpRemote>(
        line_shares_ != nullptr ? &line_shares_->TurnTo(FirstHostOf(address)) : nullptr);
  }
  return *remote;
}

std::size_t TcpNode::Progress() noexcept {
  std::size_t work = Receive();
  if (std::exchange(sockets_bell_.rung, false)) TakeSockets();
  if (std::exchange(timer_bell_.rung, false)) {
    std::uint64_t expirations = 0;
    [[maybe_unused]] const ssize_t got = ::read(timer_.get(), &expirations, sizeof(expirations));
  }
  if (some_failed_) ReportFailures();
  Tick();
  work += busy_.Advance();
  // What the communicators have handed over by now takes its turn.
  for (auto& [address, remote] : remotes_) work += remote->Advance();
  return work;
}

std::size_t TcpNode::Receive() noexcept {
  std::size_t work = 0;
  std::size_t turns = 0;
  do {
    work += poller_.Poll();
    poller_.ForEachReady([&turns](TcpConnection& connection) {
      ++turns;
      connection.HandleReady();
    });
  } while (poller_.has_ready() && turns < kMostTurns && !SharesAWay());
  return work + turns;
}

bool TcpNode::SharesAWay() const noexcept {
  return std::any_of(remotes_.begin(), remotes_.end(),
                     [](const auto& entry) { return entry.second->is_shared(); });
}

void TcpNode::TakeSockets() noexcept {
  for (WireSockets::Event& event : sockets_->Take()) {
    const auto found = ends_.find(event.wire_id);
    if (found != ends_.end()) found->second.wire->Take(std::move(event));
  }
}

void TcpNode::ReportFailures() noexcept {
  some_failed_ = false;
  for (auto& [wire_id, end] : ends_) end.wire->ReportFailures();
}

std::optional<Clock::time_point> TcpNode::Deadline() const noexcept {
  std::optional<Clock::time_point> earliest;
  const auto consider = [&earliest](std::optional<Clock::time_point> deadline) {
    if (deadline && (!earliest || *deadline < *earliest)) earliest = deadline;
  };
  for (const TcpWire* const wire : awaiting_dials_) consider(wire->deadline());
  for (const auto& [address, remote] : remotes_) consider(remote->deadline());
  return earliest;
}

void TcpNode::Tick() noexcept {
  if (!Deadline()) return;
  const Clock::time_point now = Clock::now();
  std::erase_if(awaiting_dials_, [now](TcpWire* wire) {
    wire->Tick(now);
    return !wire->deadline().has_value();
  });
  for (auto& [address, remote] : remotes_) remote->Tick(now);
}

bool TcpNode::SetTimer(Clock::time_point when) noexcept {
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(when - Clock::now());
  if (left.count() <= 0) return false;
  itimerspec time{};
  time.it_value.tv_sec = left.count() / 1'000'000'000;
  time.it_value.tv_nsec = left.count() % 1'000'000'000;
  return ::timerfd_settime(timer_.get(), 0, &time, nullptr) == 0;
}

bool TcpNode::Arm() noexcept {
  if (poller_.has_ready() || some_failed_) return false;
  if (busy_.HasPendingWork()) return false;
  for (const auto& [address, remote] : remotes_) {
    if (remote->CanAdvance()) return false;
  }
  const std::optional<Clock::time_point> deadline = Deadline();
  if (deadline && !SetTimer(*deadline)) return false;
  poller_.AwaitWholeFrames();
  return true;
}

void TcpNode::CloseWire(TcpWire& wire) noexcept {
  // Who has been let in gets a goodbye, too.
  TakeSockets();
  // A wire whose communicator was never made is open nowhere.
  if (ends_.erase(wire.wire_id()) > 0) sockets_->Close(wire.wire_id());
  std::erase(awaiting_dials_, &wire);
  for (auto& connection : wire.Close()) farewells_.Add(std::move(connection));
  absl::erase_if(remotes_, [](const auto& entry) { return !entry.second->has_lines(); });
}

}  // namespace ringd
