#include "backends/loopback/loopback_communicator.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/collectives/message.h"
#include "backends/collectives/operation.h"
#include "proto/operations/operation_traits.h"
#include "proto/reduce/reduce.h"

namespace ringd {
namespace {

std::size_t ByteCount(const CollectiveRequest& request) noexcept {
  if (!TraitsOf(request.kind).moves_data) return 0;
  return request.element_count * SizeOf(request.data_type);
}

bool IsRoot(const CollectiveRequest& request, std::size_t node) noexcept {
  return static_cast<std::size_t>(request.root.value()) == node;
}

// The node's bytes are part of the result.
bool GivesBytes(const CollectiveRequest& request, std::size_t node) noexcept {
  return TraitsOf(request.kind).Reads(IsRoot(request, node));
}

// What the nodes' inputs and results are made of: their blocks, or else the buffer as one.
BlockMap MapOf(const CollectiveRequest& request, std::size_t node_count) noexcept {
  if (!request.blocks.empty()) return BlockMap::Of(request.blocks, kMaxChunkBytes);
  const bool parts = TraitsOf(request.kind).HasParts();
  return BlockMap::Even(ByteCount(request), static_cast<std::uint32_t>(parts ? node_count : 1),
                        kMaxChunkBytes);
}

// Calls visit(range) for each block that belongs to the node's input or result, unless empty, until
// one says false.
template <typename Visit>
bool VisitBlocks(const BlockMap& map, Extent extent, std::size_t node, Visit visit) {
  for (std::uint32_t block = 0; block < map.block_count(); ++block) {
    if (extent == Extent::kOwnPart && block != node) continue;
    const ByteRange range = map.Block(block);
    if (!range.empty() && !visit(range)) return false;
  }
  return true;
}

}  // namespace

LoopbackCommunicator::LoopbackCommunicator(std::shared_ptr<LoopbackHub::State> hub,
                                           const CommunicatorSpec& spec,
                                           std::function<void()> on_close)
    : hub_(std::move(hub)),
      spec_(spec),
      on_close_(std::move(on_close)),
      self_(static_cast<std::size_t>(spec.self.value())),
      node_count_(spec.addresses.size()) {}

LoopbackCommunicator::~LoopbackCommunicator() {
  Abort("the communicator was closed");
  on_close_();
}

bool LoopbackCommunicator::TryPost(const CollectiveRequest& request) noexcept {
  if (posted_.size() + finished_.size() >= kMaxInFlight) return false;
  ++totals_.operations_posted;
  Posted posted{.request = request, .times = {}, .in_place = InPlaceAccessor(request), .input = {}};
  posted.times.posted = CollectiveTimes::TimePoint::clock::now();
  if (!health_.ok()) {
    Finish(posted, failure_outcome_, failure_culprit_);
    return true;
  }
  // There are no links to probe.
  if (!IsValid(request.kind) ||
      Operation::Unsupported(request, static_cast<std::int32_t>(node_count_))) {
    Finish(posted, CollectiveOutcome::kUnsupported, NodeIndex(-1));
    return true;
  }
  auto& next = next_sequence_[request.id.channel];
  next = std::max(next, std::uint64_t{request.id.sequence} + 1);
  {
    const MutexLock lock(hub_->mutex);
    LoopbackExchange& exchange = hub_->groups[spec_.wire_id][request.id];
    if (exchange.contributions.empty()) {
      exchange.contributions.resize(node_count_);
      exchange.contributed.resize(node_count_);
      exchange.left.resize(node_count_);
    }
    if (exchange.first.value() < 0) {
      exchange.first = spec_.self;
      exchange.fingerprint = Fingerprint(request);
    } else if (exchange.fingerprint != Fingerprint(request)) {
      exchange.disagrees = spec_.self;
      WakeOthers();
    }
  }
  posted_[request.id] = posted;
  return true;
}

std::size_t LoopbackCommunicator::Poll(std::span<Completion> out) noexcept {
  const std::size_t count = std::min(out.size(), finished_.size());
  std::copy_n(finished_.begin(), count, out.begin());
  finished_.erase(finished_.begin(), finished_.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}

void LoopbackCommunicator::Cancel(OperationId id) noexcept {
  if (const auto found = posted_.find(id); found != posted_.end()) {
    const Posted posted = found->second;
    posted_.erase(found);
    {
      const MutexLock lock(hub_->mutex);
      Leave(id);
    }
    Finish(posted, CollectiveOutcome::kCancelled, NodeIndex(-1));
    return;
  }
  auto& next = next_sequence_[id.channel];
  next = std::max(next, std::uint64_t{id.sequence} + 1);
}

void LoopbackCommunicator::Abort(absl::string_view reason) noexcept {
  FailAll(CollectiveOutcome::kAborted, NodeIndex(-1), absl::AbortedError(reason));
}

CommunicatorStatistics LoopbackCommunicator::Statistics() const {
  CommunicatorStatistics statistics = totals_;
  if (node_count_ > 1 && traffic_.messages_sent > 0) {
    statistics.neighbours.push_back(traffic_);
    statistics.neighbours.back().node =
        NodeIndex(static_cast<std::int32_t>((self_ + 1) % node_count_));
    statistics.neighbours.back().line.transports = "loopback";
  }
  return statistics;
}

std::size_t LoopbackCommunicator::Advance() noexcept {
  LookForLostNodes();
  std::size_t work = 0;
  for (auto it = posted_.begin(); it != posted_.end();) {
    CollectiveOutcome outcome = CollectiveOutcome::kDone;
    NodeIndex culprit(-1);
    if (!AdvanceOne(it->second, outcome, culprit, work)) {
      ++it;
      continue;
    }
    ++work;
    const Posted posted = it->second;
    it = posted_.erase(it);
    Finish(posted, outcome, culprit);
  }
  return work;
}

bool LoopbackCommunicator::AdvanceOne(Posted& posted, CollectiveOutcome& outcome,
                                      NodeIndex& culprit, std::size_t& work) noexcept {
  const CollectiveRequest& request = posted.request;
  const std::size_t bytes = ByteCount(request);
  // Outside of the lock: packing takes time.
  if (!posted.given && !TakeInput(posted)) return false;
  {
    const MutexLock lock(hub_->mutex);
    LoopbackExchange& exchange = hub_->groups[spec_.wire_id][request.id];
    if (exchange.disagrees.value() >= 0) {
      outcome = CollectiveOutcome::kDisagreement;
      culprit = exchange.disagrees == spec_.self ? exchange.first : exchange.disagrees;
      Leave(request.id);
      return true;
    }
    if (!posted.given) {
      posted.given = true;
      ++work;
      posted.times.first_sent = posted.times.last_sent = CollectiveTimes::TimePoint::clock::now();
      GiveInput(posted, exchange);
    }
    if (!exchange.complete) return false;
    VisitBlocks(MapOf(request, node_count_), TraitsOf(request.kind).output, self_,
                [&](const ByteRange& range) {
                  std::memcpy(request.buffer + range.begin, &exchange.result[range.begin],
                              range.size());
                  return true;
                });
    posted.times.first_received = posted.times.last_received =
        CollectiveTimes::TimePoint::clock::now();
    traffic_.bytes_received += bytes;
    ++traffic_.messages_received;
    Leave(request.id);
  }
  HandOver(posted);
  return true;
}

bool LoopbackCommunicator::TakeInput(Posted& posted) noexcept {
  const CollectiveRequest& request = posted.request;
  if (!GivesBytes(request, self_)) return true;
  posted.input.resize(ByteCount(request));
  return VisitBlocks(MapOf(request, node_count_), TraitsOf(request.kind).input, self_,
                     [&](const ByteRange& range) {
                       if (range.end <= posted.taken) return true;
                       const std::byte* const input =
                           posted.accessor().Input(range.begin, range.end);
                       if (input == nullptr) return false;
                       std::memcpy(&posted.input[range.begin], input, range.size());
                       posted.taken = range.end;
                       return true;
                     });
}

void LoopbackCommunicator::HandOver(Posted& posted) noexcept {
  const CollectiveRequest& request = posted.request;
  const OperationTraits& traits = TraitsOf(request.kind);
  VisitBlocks(MapOf(request, node_count_), traits.output, self_, [&](const ByteRange& range) {
    if (traits.combines) {
      posted.accessor().OnCombined(range.begin, range.end);
    } else {
      posted.accessor().OnResult(range.begin, range.end, request.buffer + range.begin, false);
    }
    return true;
  });
}

void LoopbackCommunicator::GiveInput(Posted& posted, LoopbackExchange& exchange) noexcept {
  const CollectiveRequest& request = posted.request;
  exchange.contributed[self_] = true;
  ++traffic_.messages_sent;
  if (GivesBytes(request, self_)) {
    traffic_.bytes_sent += posted.input.size();
    exchange.contributions[self_] = std::move(posted.input);
  }
  bool all = true;
  for (std::size_t node = 0; node < node_count_; ++node) {
    const bool needed = !TraitsOf(request.kind).rooted || IsRoot(request, node);
    if (needed && !exchange.contributed[node]) all = false;
  }
  if (all && !exchange.complete) {
    Combine(request, exchange);
    exchange.complete = true;
    WakeOthers();
  }
}

void LoopbackCommunicator::Combine(const CollectiveRequest& request,
                                   LoopbackExchange& exchange) noexcept {
  for (std::size_t node = 0; node < node_count_; ++node) {
    if (!GivesBytes(request, node)) continue;
    std::vector<std::byte>& input = exchange.contributions[node];
    if (exchange.result.empty()) {
      exchange.result = std::move(input);
    } else if (TraitsOf(request.kind).combines) {
      ReduceInto(request.data_type, request.op, exchange.result.data(), input.data(),
                 request.element_count);
    } else {
      VisitBlocks(MapOf(request, node_count_), TraitsOf(request.kind).input, node,
                  [&](const ByteRange& range) {
                    std::memcpy(&exchange.result[range.begin], &input[range.begin], range.size());
                    return true;
                  });
    }
  }
}

void LoopbackCommunicator::Leave(OperationId id) noexcept {
  auto& group = hub_->groups[spec_.wire_id];
  const auto found = group.find(id);
  if (found == group.end()) return;
  found->second.left[self_] = true;
  const auto& left = found->second.left;
  if (std::find(left.begin(), left.end(), false) == left.end()) group.erase(found);
}

void LoopbackCommunicator::WakeOthers() noexcept {
  for (std::size_t node = 0; node < node_count_; ++node) {
    const auto found = hub_->event_fds.find(spec_.addresses[node]);
    if (found == hub_->event_fds.end()) continue;
    const std::uint64_t one = 1;
    // Fails only if the counter is full, and then the reader wakes anyway.
    [[maybe_unused]] const auto written = ::write(found->second, &one, sizeof(one));
  }
}

bool LoopbackCommunicator::HasPendingWork() noexcept {
  const MutexLock lock(hub_->mutex);
  for (const auto& [id, posted] : posted_) {
    const LoopbackExchange& exchange = hub_->groups[spec_.wire_id][id];
    const bool waits_for_accessor =
        posted.request.accessor != nullptr && GivesBytes(posted.request, self_);
    if (!posted.given && !waits_for_accessor) return true;
    if (exchange.complete && posted.given) return true;
    if (exchange.disagrees.value() >= 0) return true;
  }
  return false;
}

void LoopbackCommunicator::LookForLostNodes() noexcept {
  if (!health_.ok()) return;
  for (std::size_t node = 0; node < node_count_; ++node) {
    {
      const MutexLock lock(hub_->mutex);
      if (!hub_->dead.contains(spec_.addresses[node])) continue;
    }
    lost_node_ = NodeIndex(static_cast<std::int32_t>(node));
    const std::string name =
        node < spec_.node_names.size() ? spec_.node_names[node] : absl::StrCat("node ", node);
    FailAll(CollectiveOutcome::kPeerLost, lost_node_,
            absl::UnavailableError(absl::StrCat("lost the connection to ", name, ": it is gone")));
    return;
  }
}

void LoopbackCommunicator::FailAll(CollectiveOutcome outcome, NodeIndex culprit,
                                   absl::Status cause) noexcept {
  if (!health_.ok()) return;
  health_ = std::move(cause);
  failure_outcome_ = outcome;
  failure_culprit_ = culprit;
  std::map<OperationId, Posted> posted;
  posted.swap(posted_);
  for (const auto& [id, operation] : posted) {
    {
      const MutexLock lock(hub_->mutex);
      Leave(id);
    }
    Finish(operation, outcome, culprit);
  }
}

void LoopbackCommunicator::Finish(const Posted& posted, CollectiveOutcome outcome,
                                  NodeIndex culprit) noexcept {
  Completion completion;
  completion.id = posted.request.id;
  completion.outcome = outcome;
  completion.culprit = culprit;
  completion.user_data = posted.request.user_data;
  completion.times = posted.times;
  completion.times.finished = CollectiveTimes::TimePoint::clock::now();
  if (outcome == CollectiveOutcome::kDone) {
    ++totals_.operations_done;
    totals_.bytes_reduced += ByteCount(posted.request);
  } else {
    ++totals_.operations_failed;
  }
  finished_.push_back(completion);
}

}  // namespace ringd
