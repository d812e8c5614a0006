#include "daemon/lanes/rank_exchange/rank_exchange_setup.h"

#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/lanes/rank_exchange/rank_exchange_socket.h"

namespace ringd {

RankExchangeSetup::RankExchangeSetup(RankExchangePlan plan, RankExchangeSockets* sockets,
                                     LogFields fields, Clock::time_point now)
    : plan_(std::move(plan)),
      sockets_(sockets),
      fields_(fields),
      began_(now),
      connections_(plan_.node_names.size()),
      heard_(plan_.node_names.size()) {
  const auto node_count = static_cast<std::uint32_t>(connections_.size());
  for (RankExchangeNodeSet left = NeighboursOf(plan_.self, node_count, plan_.knomial); left != 0;) {
    const std::uint32_t node = TakeLowest(left);
    (node < plan_.self ? parents_ : children_) |= NodeBit(node);
  }
  sockets_->Open({plan_.wire_id, NodeIndex(static_cast<std::int32_t>(plan_.self)), plan_.key,
                  plan_.addresses, plan_.node_names});
  for (RankExchangeNodeSet left = parents_; left != 0;) {
    sockets_->Dial(plan_.wire_id, NodeIndex(static_cast<std::int32_t>(TakeLowest(left))));
  }
}

RankExchangeSetup::~RankExchangeSetup() { CloseAll(); }

void RankExchangeSetup::CloseAll() {
  sockets_->Close(plan_.wire_id);
  for (UniqueFd& connection : connections_) {
    sockets_->Unwatch(connection.get());
    connection.Reset();
  }
}

void RankExchangeSetup::Fail(absl::string_view why) {
  state_ = State::kFailed;
  failure_ = absl::UnavailableError(why);
  CloseAll();
}

void RankExchangeSetup::FailFor(std::uint32_t node, absl::string_view what) {
  Fail(absl::StrCat(plan_.node_names[node], ": ", what));
}

Clock::time_point RankExchangeSetup::Deadline() const noexcept {
  return began_ + kPatience + (is_hub() ? std::chrono::milliseconds(0) : kGrace);
}

RankExchangeNodeSet RankExchangeSetup::Missing(RankExchangeNodeSet of) const noexcept {
  RankExchangeNodeSet missing = 0;
  for (RankExchangeNodeSet left = of; left != 0;) {
    const std::uint32_t node = TakeLowest(left);
    if (!connections_[node].valid()) missing |= NodeBit(node);
  }
  return missing;
}

std::string RankExchangeSetup::DescribeMissing() const {
  std::vector<std::string> names;
  for (RankExchangeNodeSet left = Missing(children_); left != 0;) {
    names.push_back(plan_.node_names[TakeLowest(left)]);
  }
  return absl::StrJoin(names, ", ");
}

RankExchangeSetup::State RankExchangeSetup::Advance(Clock::time_point now) {
  if (state_ != State::kPending) return state_;
  Gather();
  if (state_ == State::kPending) CheckSilence();
  if (state_ != State::kPending) return state_;
  const bool is_ready = Missing(children_ | parents_) == 0;
  if (is_hub()) {
    HearReady();
    if (state_ == State::kPending && is_ready && ready_ == children_) {
      // One that was ready may have given up since.
      CheckSilence();
      if (state_ == State::kPending) OpenAll();
    }
  } else if (is_ready && !reported_) {
    Report();
  }
  if (state_ == State::kPending && reported_) AwaitOpen();
  if (state_ == State::kPending && now >= Deadline()) FailForTime();
  return state_;
}

void RankExchangeSetup::FailForTime() {
  const auto patience =
      std::chrono::duration_cast<std::chrono::milliseconds>(Deadline() - began_).count();
  if (Missing(children_) != 0) {
    Fail(absl::StrCat("no connection came from ", DescribeMissing(), " within ", patience, " ms"));
    return;
  }
  if (is_hub()) {
    RankExchangeNodeSet unready = children_ & ~ready_;
    FailFor(TakeLowest(unready), absl::StrCat("it was not ready within ", patience, " ms"));
    return;
  }
  RankExchangeNodeSet unconnected = Missing(parents_);
  const std::uint32_t parent = unconnected == 0 ? 0 : TakeLowest(unconnected);
  FailFor(parent,
          absl::StrCat("at ", plan_.addresses[parent],
                       reported_ ? " it did not open the rank exchange" : " it does not answer",
                       " within ", patience, " ms"));
}

absl::Status RankExchangeSetup::AddConnection(WireSockets::Event& event) {
  const auto node = static_cast<std::uint32_t>(event.node.value());
  const RankExchangeNodeSet expected = event.dialled_here ? parents_ : children_;
  if (node >= connections_.size() || (expected & NodeBit(node)) == 0) {
    return absl::InvalidArgumentError(absl::StrCat("no node ", node, " of the job connects here"));
  }
  if (connections_[node].valid()) {
    return absl::AlreadyExistsError(absl::StrCat(plan_.node_names[node], " has come before"));
  }
  connections_[node] = std::move(event.socket);
  TuneRankExchangeSocket(connections_[node].get());
  sockets_->Watch(connections_[node].get());
  return absl::OkStatus();
}

void RankExchangeSetup::Gather() {
  for (WireSockets::Event& event : sockets_->TakeEvents(plan_.wire_id)) {
    const auto node = static_cast<std::uint32_t>(event.node.value());
    if (!event.status.ok()) {
      FailFor(node, event.status.message());
      return;
    }
    // It ends that connection alone: the right one may still come.
    if (absl::Status status = AddConnection(event); !status.ok()) {
      LogWarning(absl::StrCat("a connection to the rank exchange was closed: ", status.message()),
                 fields_);
    }
  }
}

void RankExchangeSetup::CheckSilence() {
  RankExchangeNodeSet others = children_ | parents_;
  // What is to come from the rest is taken in elsewhere.
  if (is_hub()) others &= ready_;
  if (reported_) others &= ~NodeBit(0);
  while (others != 0) {
    const std::uint32_t node = TakeLowest(others);
    if (!connections_[node].valid()) continue;
    const absl::Status status = CheckSilent(connections_[node].get());
    // As soon as the hub knows of all, the ranks of other nodes may begin.
    if (status.ok()) continue;
    if (reported_ && absl::IsInvalidArgument(status)) {
      // What they have said stays there, and would wake the engine for as long.
      sockets_->Unwatch(connections_[node].get());
      continue;
    }
    FailFor(node, status.message());
    return;
  }
}

void RankExchangeSetup::HearReady() {
  for (RankExchangeNodeSet left = children_ & ~ready_ & ~Missing(children_); left != 0;) {
    const std::uint32_t node = TakeLowest(left);
    Heard& heard = heard_[node];
    const absl::Status status = ReceiveSome(
        connections_[node].get(), std::as_writable_bytes(std::span(&heard.sign, 1)), heard.filled);
    if (!status.ok()) return FailFor(node, status.message());
    if (heard.filled < sizeof(heard.sign)) continue;
    if (heard.sign != kRankExchangeReady) return FailFor(node, "it said what makes no sense");
    ready_ |= NodeBit(node);
  }
}

void RankExchangeSetup::OpenAll() {
  for (std::uint32_t node = 1; node < connections_.size(); ++node) {
    if (absl::Status status =
            SendWhole(connections_[node].get(), std::as_bytes(std::span(&kRankExchangeOpen, 1)));
        !status.ok()) {
      // Those that have heard it find their connections closed.
      FailFor(node, status.message());
      return;
    }
  }
  state_ = State::kOpen;
}

void RankExchangeSetup::Report() {
  if (absl::Status status =
          SendWhole(connections_[0].get(), std::as_bytes(std::span(&kRankExchangeReady, 1)));
      !status.ok()) {
    FailFor(0, status.message());
    return;
  }
  reported_ = true;
}

void RankExchangeSetup::AwaitOpen() {
  Heard& heard = heard_[0];
  const absl::Status status = ReceiveSome(
      connections_[0].get(), std::as_writable_bytes(std::span(&heard.sign, 1)), heard.filled);
  if (!status.ok()) {
    FailFor(0, absl::StrCat(status.message(), " before it opened the rank exchange"));
    return;
  }
  if (heard.filled < sizeof(heard.sign)) return;
  if (heard.sign != kRankExchangeOpen) {
    FailFor(0, "it answered with what makes no sense");
    return;
  }
  state_ = State::kOpen;
}

std::vector<UniqueFd> RankExchangeSetup::TakeConnections() {
  sockets_->Close(plan_.wire_id);
  std::vector<UniqueFd> taken(connections_.size());
  for (std::size_t node = 0; node < connections_.size(); ++node) {
    if (!connections_[node].valid()) continue;
    sockets_->Unwatch(connections_[node].get());
    HandOverRankExchangeSocket(connections_[node].get());
    taken[node] = std::move(connections_[node]);
  }
  return taken;
}

}  // namespace ringd
