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
  const auto absent = MembersWithoutSubmission(scheduler_->NameOf(missing));
  return std::all_of(absent.begin(), absent.end(), [this](int member) {
    return members_[static_cast<std::size_t>(member)]->ClientSleeps();
  });
}

std::vector<int> JobCommunicator::MembersWithout(const std::string& tensor) const {
  std::vector<int> absent = MembersWithoutSubmission(tensor);
  if (way_.local != nullptr) {
    const bool on_gpus = absent.size() < members_.size();
    return on_gpus ? absent : way_.local->MembersWithout(tensor);
  }
  if (absent.empty()) absent = MembersInTheMiddleOf(tensor);
  std::vector<WaitingSubmission> on_rank_exchange;
  AddRankExchangeWaits(Clock::time_point::max(), on_rank_exchange);
  std::erase_if(on_rank_exchange, [&](const auto& wait) { return wait.name != tensor; });
  for (const WaitingSubmission& wait : on_rank_exchange) std::erase(absent, wait.member);
  if (on_rank_exchange.empty()) return absent;
  // They wait for one who has submitted it, but holds what they need.
  for (const int holder : rank_exchange_->Holders()) {
    if (std::find(absent.begin(), absent.end(), holder) == absent.end()) absent.push_back(holder);
  }
  std::sort(absent.begin(), absent.end());
  return absent;
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
  if (way_.local == nullptr && rank_exchange_ == nullptr) return counters_;
  JobCommunicatorCounters counters = counters_;
  std::uint64_t bytes = 0;
  if (rank_exchange_ != nullptr) {
    for (std::size_t m = 0; m < members_.size(); ++m) {
      const RankExchangeMemberCounters member = rank_exchange_->Counters(static_cast<int>(m));
      counters.tensors += member.completed;
      bytes = std::max(bytes, member.bytes);
    }
    counters.operations += rank_exchange_->completed();
    counters.payload_bytes += bytes;
    return counters;
  }
  std::uint64_t operations = 0;
  for (std::size_t m = 0; m < members_.size(); ++m) {
    const LocalMemberCounters member = way_.local->Counters(static_cast<int>(m));
    counters.tensors += member.ended - member.failed;
    operations = std::max(operations, member.ended - member.failed);
    bytes = std::max(bytes, member.bytes);
  }
  counters.operations += operations;
  counters.payload_bytes += bytes;
  return counters;
}

std::string JobCommunicator::OrdinaryMemory() const {
  return way_.local == nullptr ? "" : way_.local->OrdinaryMemory();
}

LocalMemberCounters JobCommunicator::MemberCounters(int member) const noexcept {
  const Session& session = *members_[static_cast<std::size_t>(member)];
  LocalMemberCounters counters{session.submitted(), session.completed(), session.failed(), 0};
  if (way_.local != nullptr) {
    const LocalMemberCounters local = way_.local->Counters(member);
    counters.submitted += local.submitted;
    counters.ended += local.ended;
    counters.failed += local.failed;
    counters.bytes += local.bytes;
  }
  if (rank_exchange_ != nullptr) {
    const RankExchangeMemberCounters exchanged = rank_exchange_->Counters(member);
    counters.submitted += exchanged.completed;
    counters.ended += exchanged.completed;
    counters.bytes += exchanged.bytes;
  }
  return counters;
}

absl::StatusOr<std::string> JobCommunicator::DescribeMismatch(
    std::uint32_t tensor, std::span<const std::uint32_t> metas) const {
  const auto& node = membership_->nodes[static_cast<std::size_t>(membership_->self.value())];
  const std::optional<std::string> name =
      way_.local == nullptr ? std::nullopt : way_.local->NameOf(tensor);
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

void JobCommunicator::AddLocallyWaiting(Clock::time_point before, std::size_t most, bool& all,
                                        std::vector<WaitingSubmission>& waiting) const {
  std::vector<std::size_t> counts(members_.size());
  for (LocalWait& wait : way_.local->Waiting(before, Clock::now(), all)) {
    if (counts[static_cast<std::size_t>(wait.member)]++ >= most) {
      all = false;
      continue;
    }
    WaitingSubmission& entry = waiting.emplace_back();
    entry.member = wait.member;
    entry.name = std::move(wait.tensor);
    const TensorMeta* const meta = metas_.Find(wait.meta_id);
    entry.bytes = meta == nullptr ? wait.ordered_bytes : ByteCount(*meta);
    entry.since = wait.since;
    entry.state = wait.arrived ? TensorState::kRunning : TensorState::kIdle;
    entry.absent_members = std::move(wait.absent);
  }
}

std::optional<Clock::time_point> JobCommunicator::WaitingSince(Clock::time_point before) const {
  std::optional<Clock::time_point> since;
  if (way_.local != nullptr) {
    since = way_.local->WaitingSince();
    if (since.has_value() && *since > before) since.reset();
    if (waiting_ == 0) return since;
  }
  for (const WaitingSubmission& entry : Waiting(before)) {
    since = std::min(since.value_or(entry.since), entry.since);
  }
  return since;
}

std::vector<WaitingSubmission> JobCommunicator::Waiting(Clock::time_point before, std::size_t most,
                                                        bool& all) const {
  all = true;
  std::vector<WaitingSubmission> waiting;
  if (way_.local != nullptr) AddLocallyWaiting(before, most, all, waiting);
  AddQueued(before, most, all, waiting);
  AddRankExchangeWaits(before, waiting);  // one of each member at most
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

void JobCommunicator::AddRankExchangeWaits(Clock::time_point before,
                                           std::vector<WaitingSubmission>& waiting) const {
  if (rank_exchange_ == nullptr || failed()) return;
  const std::vector<int> holders = rank_exchange_->Holders();
  for (const RankExchangeWait& wait : rank_exchange_->Waiting(before, Clock::now())) {
    const Registration* const registration =
        members_[static_cast<std::size_t>(wait.member)]->FindRegistration(wait.registration);
    // A holder waits for nobody, and others for it.
    const bool holds = std::find(holders.begin(), holders.end(), wait.member) != holders.end();
    if (registration == nullptr || holds) continue;
    WaitingSubmission& entry = waiting.emplace_back();
    entry.member = wait.member;
    entry.name = registration->name;
    entry.bytes = registration->bytes;
    entry.since = wait.since;
    entry.state = TensorState::kRunning;
    entry.absent_members = holders;
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

CommunicatorStatistics JobCommunicator::WireStatistics() const {
  return way_.wire == nullptr ? CommunicatorStatistics{} : way_.wire->Statistics();
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
