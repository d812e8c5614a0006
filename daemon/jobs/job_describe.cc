// What ringctl shows of a job.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/jobs/job.h"
#include "daemon/lanes/rank_exchange/rank_exchange_watch.h"

namespace ringd {
namespace {

// Of one job, so that no list takes the engine long: tensors of a rank; tensors of all local ranks
// together; and ranks for whom one tensor waits.
constexpr std::size_t kPendingOfRank = 64;
constexpr std::size_t kPendingOfJob = 2000;
constexpr std::size_t kAwaitedShown = 8;
constexpr int kMissingShown = 64;

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

absl::string_view StageName(const WaitingSubmission& waiting) {
  switch (waiting.state) {
    case TensorState::kIdle:
    case TensorState::kHeld:
      return "waiting";
    case TensorState::kAnnounced:
      return "negotiating";
    case TensorState::kRunning:
      return "executing";
  }
  return "waiting";
}

absl::string_view Name(Job::State state) {
  switch (state) {
    case Job::State::kJoining:
      return "joining";
    case Job::State::kRunning:
      return "running";
    case Job::State::kFailed:
      return "failed";
  }
  return "";
}

double UnixSeconds(Clock::time_point time, Clock::time_point now) {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
             .count() -
         Seconds(now - time);
}

void SetName(std::string* field, absl::string_view value) { *field = std::string(value); }

}  // namespace

void Job::Describe(v1::Job* out, Clock::time_point now) const {
  out->set_job_id(options_.job_id);
  out->set_uid(options_.uid);
  SetName(out->mutable_state(), Name(state_));
  out->set_size(options_.size);
  out->set_weight(options_.weight);
  out->set_node_count(membership_ == nullptr ? 0 : membership_->node_count());
  out->set_age_seconds(Seconds(now - created_));
  out->set_started_unix_seconds(UnixSeconds(created_, now));
  out->set_rendezvous(options_.rendezvous);
  out->set_failure(std::string(failure().message()));
  for (const auto& [local_rank, member] : members_) {
    v1::Member* shown = out->add_local_members();
    shown->set_rank(member.rank.value());
    shown->set_local_rank(local_rank.value());
    shown->set_pid(member.pid);
    shown->set_host(options_.node_name);
    shown->set_node_index(membership_ == nullptr ? -1 : membership_->self.value());
    shown->set_state(StateOf(member));
  }
  if (state_ == State::kJoining) DescribeMissing(out, now);
  std::optional<v1::Stall> stall;
  for (const CommunicatorPart* const part : Parts()) {
    stall = DescribeStall(*part, now);
    if (stall.has_value()) break;
  }
  if (!stall.has_value()) return;
  out->set_state("stalled");
  for (v1::Member& member : *out->mutable_local_members()) {
    if (FindAwaited(*stall, Rank(member.rank())) == nullptr) continue;
    member.set_awaited_seconds(stall->seconds());
  }
  *out->mutable_stall() = *std::move(stall);
}

void Job::DescribeMissing(v1::Job* out, Clock::time_point now) const {
  // Which ranks live on other nodes the coordinator alone knows.
  if (options_.size != options_.local_size) {
    if (!gathering_.has_value()) {
      if (options_.coordinates_here) return;
      out->set_waits_for(absl::StrCat("an answer of the ringd at ", options_.rendezvous,
                                      ", where rank 0 is to join"));
      return;
    }
    if (const auto silent = coordinator_watch_.SilentFor(now)) {
      // Who was missing then may have come.
      out->set_waits_for(absl::StrCat("the ringd at ", options_.rendezvous,
                                      ", which has not answered for ", silent->count(), " s"));
      return;
    }
    if (gathering_->missing_ranks().empty()) {
      out->set_waits_for("the nodes to measure the links between them");
    }
    *out->mutable_missing_ranks() = gathering_->missing_ranks();
    out->set_missing_left_out(gathering_->missing_left_out());
    return;
  }
  std::vector<bool> here(static_cast<std::size_t>(options_.size), false);
  for (const auto& [local_rank, member] : members_) {
    here[static_cast<std::size_t>(member.rank.value())] = true;
  }
  std::uint32_t left_out = 0;
  for (int rank = 0; rank < options_.size; ++rank) {
    if (here[static_cast<std::size_t>(rank)]) continue;
    if (out->missing_ranks_size() < kMissingShown) {
      out->add_missing_ranks(rank);
    } else {
      ++left_out;
    }
  }
  out->set_missing_left_out(left_out);
}

void Job::DropCommunicator(CommunicatorPart& part, Clock::time_point now) {
  Describe(part, &part.last_description, now);
  part.last_description.clear_bytes_reduced_per_second();
  part.last_description.clear_operations_per_second();
  part.last_description.clear_busy_share();
  std::erase(active_, &part);
  part.communicator.reset();
}

void Job::DescribeMembers(const CommunicatorPart& part, v1::Communicator* out) const {
  out->clear_members();
  const Membership& membership = *part.membership;
  for (int n = 0; n < membership.node_count(); ++n) {
    const MemberNode& node = membership.nodes[static_cast<std::size_t>(n)];
    for (const MemberRank& rank : node.ranks) {
      v1::Member* shown = out->add_members();
      shown->set_rank(rank.rank.value());
      shown->set_local_rank(rank.local_rank.value());
      shown->set_pid(rank.pid);
      shown->set_host(node.name);
      shown->set_node_index(n);
      const v1::AwaitedRank* const awaited =
          out->has_stall() ? FindAwaited(out->stall(), rank.rank) : nullptr;
      if (awaited != nullptr) {
        shown->set_awaited_seconds(out->stall().seconds());
        shown->set_state(awaited->state());
      }
      const auto local = members_.find(rank.local_rank);
      if (n == membership.self.value() && local != members_.end()) {
        shown->set_state(StateOf(local->second));
      }
    }
  }
}

void Job::DescribeRing(const Membership& membership, v1::Communicator* out) {
  const std::vector<MemberNode>& nodes = membership.nodes;
  const RingChoice& ring = membership.ring;
  for (const MemberNode& node : nodes) out->add_ring(node.name);
  SetName(out->mutable_ring_source(), Name(ring.source));
  SetName(out->mutable_ring_misfit(), ring.misfit);
  out->set_links_measured_unix_seconds(static_cast<std::uint64_t>(ring.measured_unix_seconds));
  for (std::size_t from = 0; from < ring.links.node_count(); ++from) {
    for (std::size_t to = 0; to < ring.links.node_count(); ++to) {
      if (from == to) continue;
      const MeasuredLink& link = ring.links.at(from, to);
      v1::MeasuredLink* shown = out->add_measured_links();
      shown->set_from(nodes[from].name);
      shown->set_to(nodes[to].name);
      shown->set_latency_us(std::chrono::duration<double, std::micro>(link.latency).count());
      shown->set_gbit_per_second(link.bytes_per_second * 8 / 1e9);
      shown->set_in_ring(to == (from + 1) % nodes.size());
    }
  }
}

void Job::DescribeRankExchange(v1::RankExchange* out) const {
  const RankExchangeWatch* const rank_exchange = world_.communicator->rank_exchange();
  out->set_open(rank_exchange != nullptr && no_rank_exchange_.empty());
  out->set_why_not(rank_exchange_setup_ == nullptr ? no_rank_exchange_ : "it is being opened");
  if (rank_exchange == nullptr) return;
  out->set_limit_bytes(rank_exchange->limit_bytes());
  out->set_flat_bytes(rank_exchange->flat_bytes());
  out->set_completed(rank_exchange->completed());
  out->set_given_up(rank_exchange->given_up());
}

void Job::DescribeSchedule(const JobCommunicator& communicator, v1::Communicator* out) {
  const NodeSchedulerStatus schedule = communicator.SchedulerStatus();
  out->set_negotiation_messages(schedule.messages_sent + schedule.messages_received);
  out->set_negotiation_messages_per_step(static_cast<double>(schedule.messages_last_step));
  out->set_schedule_epoch(static_cast<std::uint32_t>(schedule.epoch));
  out->set_learned_buckets(static_cast<std::uint32_t>(schedule.buckets.size()));
  out->set_learned_operations(schedule.operations_learned);
  std::uint64_t departures = 0;
  for (const std::uint64_t breaks : schedule.breaks_requested) departures += breaks;
  out->set_schedule_departures(departures);
  for (const NodeBucketStatus& bucket : schedule.buckets) {
    v1::Bucket* shown = out->add_buckets();
    shown->set_channel(bucket.channel);
    shown->set_bytes(bucket.bytes);
    shown->set_tensors(static_cast<std::uint32_t>(bucket.tensors.size()));
    shown->set_occurrences(bucket.occurrences);
    if (bucket.tensors.empty()) continue;
    shown->set_first_tensor(bucket.tensors.front());
    shown->set_last_tensor(bucket.tensors.back());
  }
}

void Job::Describe(v1::CommunicatorsReply* out, Clock::time_point now) const {
  if (membership_ == nullptr) return;
  Describe(world_, out->add_communicators(), now);
  for (const auto& [number, part] : parts_) Describe(*part, out->add_communicators(), now);
}

void Job::Describe(const CommunicatorPart& part, v1::Communicator* out,
                   Clock::time_point now) const {
  if (part.communicator == nullptr) {
    *out = part.last_description;
    DescribeMembers(part, out);
    return;
  }
  if (std::optional<v1::Stall> stall = DescribeStall(part, now)) {
    *out->mutable_stall() = *std::move(stall);
  }
  const Membership& membership = *part.membership;
  out->set_communicator(part.id.value());
  out->set_number(part.number);
  out->set_job_id(options_.job_id);
  out->set_name(part.number == 0 ? "world" : part.name);
  out->set_generation(membership.generation);
  SetName(out->mutable_state(), out->has_stall() ? "stalled" : Name(state_));
  out->set_failure(std::string(failure().message()));
  out->set_size(membership.size());
  out->set_node_count(membership.node_count());
  out->set_node_index(membership.self.value());
  out->set_coordinator(membership_->nodes.front().name);
  SetName(out->mutable_backend(), membership.node_count() == 1 ? "shared memory"
                                  : transport_ == nullptr      ? "none"
                                                               : transport_->name());
  if (membership.node_count() > 1) DescribeRing(membership, out);
  if (membership.node_count() > 1 && part.number == 0)
    DescribeRankExchange(out->mutable_rank_exchange());
  out->set_by_order(part.by_order);
  out->set_ordinary_memory(part.communicator->OrdinaryMemory());
  DescribeDevices(*part.communicator, out);
  DescribeMembers(part, out);
  const CommunicatorStatistics wire = part.communicator->WireStatistics();
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  for (const NeighbourStatistics& neighbour : wire.neighbours) {
    sent += neighbour.bytes_sent;
    received += neighbour.bytes_received;
    v1::Link* link = out->add_links();
    link->set_node_index(neighbour.node.value());
    link->set_host(membership.nodes[static_cast<std::size_t>(neighbour.node.value())].name);
    link->set_transports(neighbour.line.transports);
    link->set_connections(neighbour.line.connections);
    link->set_bulk_connections(neighbour.line.bulk_connections);
    link->set_connections_reason(neighbour.line.reason);
  }
  const JobCommunicatorCounters counters = part.communicator->counters();
  out->set_tensors(counters.tensors);
  out->set_operations(counters.operations);
  out->set_bytes_reduced(counters.payload_bytes);
  out->set_bytes_sent(sent);
  out->set_bytes_received(received);
  out->set_bytes_reduced_per_second(part.communicator->BytesPerSecond(now));
  out->set_operations_per_second(part.communicator->OperationsPerSecond(now));
  out->set_busy_share(part.communicator->BusyShare(now));
  DescribeSchedule(*part.communicator, out);
  if (membership.node_count() == 1) return;
  *out->mutable_plan() = part.plan;
  for (v1::PlannedBucket& bucket : *out->mutable_plan()->mutable_buckets()) {
    const ChannelTime time = part.communicator->TimeOf(bucket.channel());
    bucket.set_waited_ms(Seconds(time.waited) * 1e3);
    bucket.set_measured_ms(Seconds(time.wire) * 1e3);
    bucket.set_occurrences(time.count);
  }
}

void Job::DescribePending(const CommunicatorPart& part, const WaitingSubmission& entry,
                          v1::PendingTensor* out, Clock::time_point now) const {
  out->set_name(entry.name);
  out->set_bytes(entry.bytes);
  out->set_age_seconds(Seconds(now - entry.since));
  SetName(out->mutable_stage(), StageName(entry));
  const std::size_t absent_count = entry.absent_members.size();
  const std::size_t named = std::min(absent_count, kAwaitedShown);
  for (std::size_t a = 0; a < named; ++a) {
    const Member& other = MemberOf(part, entry.absent_members[a]);
    std::string who = DescribeRank(other.rank, other.pid, options_.node_name);
    if (const std::string state = StateOf(other); state != "running") {
      absl::StrAppend(&who, " (", state, ")");
    }
    out->add_waits_for(who);
  }
  if (absent_count > named) {
    out->set_waits_for_left_out(static_cast<std::uint32_t>(absent_count - named));
  }
  // Also of one that is carried out: what was learned is begun before other nodes are ready.
  if (!entry.absent_members.empty()) return;
  for (const v1::StalledTensor& stalled : part.verdict.tensors()) {
    if (stalled.name() != entry.name || part.verdict_at < entry.since) continue;
    const int shown = std::min(stalled.waits_for_size(), static_cast<int>(kAwaitedShown));
    out->clear_waits_for();
    for (int w = 0; w < shown; ++w) out->add_waits_for(stalled.waits_for(w));
    out->set_waits_for_left_out(static_cast<std::uint32_t>(stalled.waits_for_size() - shown) +
                                stalled.waits_for_left_out());
  }
}

void Job::Describe(v1::QueuesReply* out, Clock::time_point now) const {
  if (world_.communicator == nullptr) {
    for (const auto& [local_rank, member] : members_) {
      DescribeMember(member, *out->add_queues());
    }
    return;
  }
  Describe(world_, out, now);
  // Of the others those on which something goes on.
  for (const auto& [number, part] : parts_) {
    if (part->communicator != nullptr && !part->communicator->Idle()) Describe(*part, out, now);
  }
}

void Job::DescribeMember(const Member& member, v1::RankQueue& queue) const {
  queue.set_job_id(options_.job_id);
  queue.set_communicator(options_.communicator.value());
  queue.set_communicator_name("world");
  queue.set_rank(member.rank.value());
  queue.set_pid(member.pid);
  queue.set_state(StateOf(member));
}

void Job::Describe(const CommunicatorPart& part, v1::QueuesReply* out,
                   Clock::time_point now) const {
  const std::size_t most = std::clamp<std::size_t>(
      kPendingOfJob / std::max<std::size_t>(members_.size(), 1), 1, kPendingOfRank);
  bool all = true;
  const std::vector<WaitingSubmission> waiting =
      part.communicator->Waiting(Clock::time_point::max(), most, all);
  std::optional<v1::Stall> stall = DescribeStall(part, now);
  for (std::size_t m = 0; m < part.positions.size(); ++m) {
    const int place = static_cast<int>(m);
    const Member& member = MemberOf(part, place);
    v1::RankQueue& queue = *out->add_queues();
    DescribeMember(member, queue);
    queue.set_communicator(part.id.value());
    if (part.number != 0) queue.set_communicator_name(part.name);
    if (member.session != nullptr) {
      const MemberCounters counters = part.communicator->CountersOf(place);
      queue.set_submitted(counters.submitted);
      queue.set_completed(counters.ended);
      queue.set_failed(counters.failed);
      queue.set_in_flight(static_cast<std::uint32_t>(counters.submitted - counters.ended));
    }
    // By member, the oldest first.
    auto next = std::partition_point(waiting.begin(), waiting.end(),
                                     [place](const auto& entry) { return entry.member < place; });
    for (; next != waiting.end() && next->member == place; ++next) {
      DescribePending(part, *next, queue.add_pending(), now);
    }
    const auto described = static_cast<std::uint32_t>(queue.pending_size());
    if (!all && queue.in_flight() > described) {
      queue.set_pending_left_out(queue.in_flight() - described);
    }
    if (stall.has_value()) MarkStalled(*stall, queue);
  }
  if (!stall.has_value()) return;
  v1::StalledJob& stalled = *out->add_stalled_jobs();
  stalled.set_job_id(options_.job_id);
  stalled.set_communicator(part.id.value());
  *stalled.mutable_stall() = *std::move(stall);
}

// The rank is awaited, or waits for one that is.
void Job::MarkStalled(const v1::Stall& stall, v1::RankQueue& queue) {
  if (FindAwaited(stall, Rank(queue.rank())) != nullptr) {
    queue.set_awaited_seconds(stall.seconds());
    return;
  }
  const bool waits =
      std::any_of(queue.pending().begin(), queue.pending().end(), [&](const auto& pending) {
        return std::find(stall.tensors().begin(), stall.tensors().end(), pending.name()) !=
               stall.tensors().end();
      });
  if (waits && queue.state() == "running") queue.set_state("stalled");
}

}  // namespace ringd
