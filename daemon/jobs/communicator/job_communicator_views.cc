// What JobCommunicator shows of itself; nothing here changes anything.
#include <algorithm>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/jobs/communicator/job_communicator.h"

namespace ringd {
namespace {

constexpr std::size_t kTensorsNamed = 3;

void SortForPeople(std::vector<WaitingSubmission>& waiting) {
  std::stable_sort(waiting.begin(), waiting.end(), [](const auto& a, const auto& b) {
    return a.member != b.member ? a.member < b.member : a.since < b.since;
  });
}

}  // namespace

LogFields JobCommunicator::Fields() const {
  return {.job = options_.job_id,
          .communicator = options_.id.value(),
          .generation = membership_->generation};
}

std::string JobCommunicator::OfCommunicator() const {
  return options_.number == 0 ? "" : absl::StrCat(" of communicator '", options_.name, "'");
}

bool JobCommunicator::AbsentRanksAreBlocked(TensorHandle missing) const {
  // In an ordinary step they compute, and this is asked of each tensor that is still to come.
  const bool any_sleeps = std::any_of(members_.begin(), members_.end(),
                                      [](const auto& member) { return member->ClientSleeps(); });
  if (!any_sleeps) return false;
  const auto absent = MembersWithoutSubmission(scheduler_->NameOf(missing));
  // None: what the ranks submitted before is still under way.
  return !absent.empty() && std::all_of(absent.begin(), absent.end(), [this](int member) {
    return members_[static_cast<std::size_t>(member)]->ClientSleeps();
  });
}

std::vector<int> JobCommunicator::MembersWithout(const std::string& tensor) const {
  std::vector<int> absent = MembersWithoutSubmission(tensor);
  if (absent.empty()) absent = MembersInTheMiddleOf(tensor);
  return lane_->MembersWithout(tensor, std::move(absent));
}

std::vector<int> JobCommunicator::MembersWithoutSubmission(const std::string& tensor) const {
  std::vector<int> absent;
  const std::optional<NamedOccurrence> named = scheduler_->Find(tensor);
  if (named.has_value() && named->has_ended) return absent;
  const bool is_known = named.has_value() && named->tensor.value() < tensors_.size() &&
                        !tensors_[named->tensor.value()].queues.empty();
  for (std::size_t m = 0; m < members_.size(); ++m) {
    if (!is_known || tensors_[named->tensor.value()].queues[m].size() <= named->before) {
      absent.push_back(static_cast<int>(m));
    }
  }
  return absent;
}

std::vector<int> JobCommunicator::MembersInTheMiddleOf(const std::string& tensor) const {
  std::vector<int> copying;
  const std::optional<NamedOccurrence> named = scheduler_->Find(tensor);
  // One that comes later is not carried out, and nobody waits for its copies.
  if (!named.has_value() || named->has_ended || named->before > 0) return copying;
  const std::uint32_t number = named->tensor.value();
  if (number >= tensors_.size() || tensors_[number].queues.empty()) return copying;
  const Tensor& known = tensors_[number];
  for (std::size_t m = 0; m < members_.size(); ++m) {
    if (known.queues[m].empty()) continue;
    if (!known.queues[m].front().submission.IsSourceThere()) copying.push_back(static_cast<int>(m));
  }
  return copying;
}

JobCommunicatorCounters JobCommunicator::counters() const noexcept {
  const Lane::Carried carried = lane_->CarriedByRanks();
  JobCommunicatorCounters counters = counters_;
  counters.tensors += carried.tensors;
  counters.operations += carried.operations;
  counters.payload_bytes += carried.payload_bytes;
  return counters;
}

MemberCounters JobCommunicator::CountersOf(int member) const noexcept {
  const Session& session = *members_[static_cast<std::size_t>(member)];
  MemberCounters counters{session.submitted(), session.completed(), session.failed(), 0};
  lane_->AddCounters(member, counters);
  return counters;
}

absl::StatusOr<std::string> JobCommunicator::DescribeMismatch(
    std::uint32_t tensor, std::span<const std::uint32_t> metas) const {
  const auto& node = membership_->own();
  const std::optional<std::string> name = lane_->NameOf(tensor);
  if (!name.has_value() || metas.size() != node.ranks.size()) {
    return absl::InvalidArgumentError("no such tensor or description");
  }
  std::vector<LocatedRankMeta> reports;
  for (std::size_t m = 0; m < metas.size(); ++m) {
    const TensorMeta* const meta = metas_.Find(metas[m]);
    if (meta == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", node.ranks[m].rank.value(), " has given its description back"));
    }
    reports.push_back({RankMeta{node.ranks[m].rank, *meta}, node.name});
  }
  return ringd::DescribeMismatch(*name, reports);
}

std::optional<Clock::time_point> JobCommunicator::WaitingSince(Clock::time_point before) const {
  std::optional<Clock::time_point> since = lane_->WaitingSince(before);
  if (waiting_ == 0) return since;
  for (const Tensor& tensor : tensors_) {
    if (tensor.members_ready == 0) continue;
    for (const auto& queue : tensor.queues) {
      if (queue.empty() || queue.front().since > before) continue;
      since = std::min(since.value_or(queue.front().since), queue.front().since);
    }
  }
  return since;
}

std::vector<WaitingSubmission> JobCommunicator::Waiting(Clock::time_point before, std::size_t most,
                                                        bool& all) const {
  all = true;
  std::vector<WaitingSubmission> waiting;
  lane_->AddWaiting(before, most, all, waiting);
  AddQueued(before, most, all, waiting);
  SortForPeople(waiting);
  return waiting;
}

void JobCommunicator::AddQueued(Clock::time_point before, std::size_t most, bool& all,
                                std::vector<WaitingSubmission>& waiting) const {
  struct Head {
    Clock::time_point since;
    std::size_t tensor;
  };
  std::vector<std::vector<Head>> heads(members_.size());
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    if (tensors_[t].members_ready == 0) continue;
    for (std::size_t m = 0; m < tensors_[t].queues.size(); ++m) {
      const auto& queue = tensors_[t].queues[m];
      if (!queue.empty() && queue.front().since <= before) {
        heads[m].push_back({queue.front().since, t});
      }
    }
  }
  for (std::size_t m = 0; m < heads.size(); ++m) {
    if (heads[m].size() > most) {
      all = false;
      const auto end = heads[m].begin() + static_cast<std::ptrdiff_t>(most);
      std::nth_element(heads[m].begin(), end, heads[m].end(),
                       [](const Head& a, const Head& b) { return a.since < b.since; });
      heads[m].resize(most);
    }
    for (const Head& found : heads[m]) {
      const Tensor& tensor = tensors_[found.tensor];
      const auto& head = tensor.queues[m].front();
      WaitingSubmission& entry = waiting.emplace_back();
      entry.member = static_cast<int>(m);
      entry.name = head.submission.registration->name;
      entry.bytes = head.submission.registration->bytes;
      entry.since = head.since;
      if (tensor.outstanding) {
        entry.state = scheduler_->StateOf(TensorHandle(static_cast<std::uint32_t>(found.tensor)));
      }
      for (std::size_t other = 0; other < tensor.queues.size(); ++other) {
        if (tensor.queues[other].empty()) entry.absent_members.push_back(static_cast<int>(other));
      }
    }
  }
}

std::string JobCommunicator::DescribeInFlight() const {
  std::vector<std::string> tensors;
  std::unordered_set<std::string> names;
  for (const WaitingSubmission& waiting : Waiting(Clock::time_point::max())) {
    if (!names.insert(waiting.name).second || tensors.size() == kTensorsNamed) continue;
    tensors.push_back(absl::StrCat("'", waiting.name, "'"));
  }
  if (tensors.empty()) return std::string(kNothingInFlight);
  const std::size_t count = names.size();
  return absl::StrCat("while ", count, count == 1 ? " tensor" : " tensors", OfCommunicator(),
                      count == 1 ? " was" : " were", " in flight (", absl::StrJoin(tensors, ", "),
                      count > kTensorsNamed ? ", ...)" : ")");
}

const MemberNode* JobCommunicator::LostNode() const {
  const std::optional<NodeIndex> lost = lane_->LostNode();
  if (!lost.has_value()) return nullptr;
  const MemberNode& node = membership_->nodes[static_cast<std::size_t>(lost->value())];
  const bool left = std::ranges::all_of(
      node.ranks, [this](const MemberRank& rank) { return options_.has_left(rank.rank); });
  return left ? nullptr : &node;
}

absl::Status JobCommunicator::DescribeHealth() const {
  absl::Status health = lane_->Health();
  const MemberNode* const node = LostNode();
  if (node == nullptr) {
    // A ringd may end when its ranks have left. Who waits for them hears that (Job::DescribeGone).
    return lane_->LostNode().has_value() ? absl::OkStatus() : health;
  }
  // Who says that it has ended would send people to a ringd that may be well.
  if (lane_->LostNodeIsUnreached()) {
    return absl::AbortedError(absl::StrCat(health.message(), " ", DescribeInFlight()));
  }
  // The backend's words are for whoever looks into the network.
  LogInfo(health.message(), Fields());
  return absl::AbortedError(absl::StrCat(DescribeLostNode(*node), " ", DescribeInFlight()));
}

std::uint64_t JobCommunicator::Progress() const {
  if (!DevicesRest()) return device_ended_;
  std::uint64_t bytes = 0;
  for (const NeighbourStatistics& neighbour : WireStatistics().neighbours) {
    bytes += neighbour.bytes_received;
  }
  return bytes;
}

double JobCommunicator::BytesPerSecond(Clock::time_point now) const {
  return bytes_rate_.PerSecond(counters().payload_bytes, now);
}

double JobCommunicator::OperationsPerSecond(Clock::time_point now) const {
  return operations_rate_.PerSecond(counters().operations, now);
}

double JobCommunicator::BusyShare(Clock::time_point now) const {
  return busy_rate_.PerSecond(counters().busy_ns, now) / 1e9;
}

}  // namespace ringd
